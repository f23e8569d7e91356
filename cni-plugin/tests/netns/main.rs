//! The plugin over real network namespaces: needs root and iproute2.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod advertisements;
mod delegated;
mod disk;
mod enforcement;
mod former_flows;
mod lab;
mod leaving;
// One piece for both crates' tests.
#[path = "../../../ipam/tests/common/mounted.rs"]
mod mounted;
mod packets;
#[path = "../../../core/tests/common/script.rs"]
mod script;
mod undo;
mod user_namespace;
