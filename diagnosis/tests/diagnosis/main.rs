//! Other programs' rules in real namespaces: what drops pods' packets is named, and
//! the cures work. Needs root, `nft`, `iptables` and `iptables-legacy`: without them
//! the tests fail.

#![expect(
    clippy::unwrap_used,
    reason = "what a test cannot go on without has failed it"
)]

mod forward_drop;
mod iptables_legacy;
#[expect(dead_code, reason = "these tests connect no hosts with each other")]
#[path = "../../../nft/tests/nft/lab.rs"]
mod lab;
