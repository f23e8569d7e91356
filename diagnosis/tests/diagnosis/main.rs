//! Other programs' rules in real namespaces: what drops packets of pods or of the
//! overlay, or translates those between pods, is named, and the cures work; so is what other programs have for Services, and
//! routing rules that lead past tweed's routes.
//! Needs root, `nft`, `iptables` and `iptables-legacy`: without them the tests fail.

#![expect(
    clippy::unwrap_used,
    reason = "what a test cannot go on without has failed it"
)]

use std::collections::BTreeSet;

use tweed_core::family::Family;
use tweed_diagnosis::{Packets, Vxlan};

mod iptables_legacy;
#[path = "../../../nft/tests/nft/lab.rs"]
mod lab;
mod masquerading;
mod nf_tables;
mod policy_routing;
mod service_proxy;
#[expect(dead_code, reason = "these tests need no more than an overlay")]
#[path = "../../../nft/tests/nft/tables.rs"]
mod tables;
mod vxlan;
#[expect(dead_code, reason = "these tests need no more than an overlay")]
#[path = "../../../nft/tests/nft/wires.rs"]
mod wires;

/// The packets that the tests ask about: those of pods of both families, and of an overlay
/// over IPv4.
fn packets() -> Packets {
    Packets {
        pods: [Family::V4, Family::V6].into(),
        direct: BTreeSet::new(),
        vxlan: Some(Vxlan {
            port: 8472,
            family: Family::V4,
        }),
        flows: Vec::new(),
    }
}
