//! The tables in real namespaces, seen with the eyes of `nft` and
//! of packets. Needs root, `nft` and `ip`: without them the tests fail.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what a test cannot go on without has failed it"
)]

mod growth;
mod inner;
mod lab;
mod made_anew;
mod masquerade;
mod multicast;
mod newer;
mod node;
mod policy;
mod quiet;
mod refused;
mod repair;
#[path = "../../../core/tests/common/script.rs"]
mod script;
mod services;
mod shapes;
mod sockets;
mod spoofing;
mod tables;
mod vandal;
mod vxlan;
mod wires;
