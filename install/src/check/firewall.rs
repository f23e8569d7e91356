//! Tables of other programs that drop forwarded packets, or the VXLAN packets of the
//! overlay: Docker, ufw, firewalld, or rules written by hand. The agent looks for them
//! continuously. Judged are the rules that the kernel has now, not the files that a
//! firewall would read at its start.

use std::collections::BTreeSet;
use std::fmt::Display;

use tweed_core::agent_state::{AGENT_STATE_FILE, LastState};
use tweed_core::family::Family;
use tweed_core::problem::Problem;
use tweed_core::{limits, regular_file};
use tweed_diagnosis::{Packets, Vxlan, iptables_legacy, nf_tables::Drops};

use super::{Outcome, incomplete, or_ok};
use crate::places::Places;

/// `has_direct` says that what pods of other nodes send comes in by an uplink.
pub(super) fn find(places: &Places, vxlan: Option<Vxlan>, has_direct: bool) -> Vec<Outcome> {
    let pods = families(places);
    let direct = if has_direct {
        pods.clone()
    } else {
        BTreeSet::new()
    };
    let packets = Packets {
        direct,
        pods,
        vxlan,
        // Which pod CIDRs other nodes have, and how they are reached, the agent knows.
        flows: Vec::new(),
    };
    let nftables = Drops::open().and_then(|mut drops| Ok(drops.problems(&packets)?.to_vec()));
    let mut findings = judge("nftables", nftables);
    let legacy = iptables_legacy::drops(&packets);
    findings.extend(judge("the old iptables", legacy));
    or_ok(findings, || {
        "no other table drops what pods send or get, or VXLAN packets between nodes".to_owned()
    })
}

/// What the rules drop that are in the kernel.
fn judge(rules: &str, found: Result<Vec<Problem>, impl Display>) -> Vec<Outcome> {
    match found {
        Ok(problems) => problems.into_iter().map(Err).collect(),
        Err(error) => {
            let message = format!("it is not known what rules of {rules} drop: {error}");
            vec![incomplete(rules, message)]
        }
    }
}

/// The families of pods' addresses: those of the pod CIDRs that the agent of this machine
/// has, or both where none is known.
fn families(places: &Places) -> BTreeSet<Family> {
    let read = regular_file::read(&places.run_dir.join(AGENT_STATE_FILE), limits::STATE).ok();
    let state = read.and_then(|text| serde_json::from_slice::<LastState>(&text).ok());
    let cidrs = state.unwrap_or_default().pod_cidrs;
    if cidrs.is_empty() {
        [Family::V4, Family::V6].into()
    } else {
        cidrs.iter().map(|cidr| Family::of(cidr.ip())).collect()
    }
}
