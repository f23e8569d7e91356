//! Other programs' rules in real namespaces: what drops packets of pods or of the
//! overlay is named, and the cures work; so is what other programs have for Services.
//! Needs root, `nft`, `iptables` and `iptables-legacy`: without them the tests fail.

#![expect(
    clippy::unwrap_used,
    reason = "what a test cannot go on without has failed it"
)]

use tweed_core::family::Family;
use tweed_diagnosis::Vxlan;

mod iptables_legacy;
#[path = "../../../nft/tests/nft/lab.rs"]
mod lab;
mod nf_tables;
mod service_proxy;
mod vxlan;
#[expect(dead_code, reason = "these tests need no more than an overlay")]
#[path = "../../../nft/tests/nft/wires.rs"]
mod wires;

/// The VXLAN packets that the tests ask about.
const VXLAN: Vxlan = Vxlan {
    port: 8472,
    family: Family::V4,
};
