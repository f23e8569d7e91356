//! Tables of other programs that drop forwarded packets, or the VXLAN packets of the
//! overlay: Docker, ufw, firewalld, or rules written by hand. The agent looks for them
//! continuously. Judged are the rules that the kernel has now, not the files that a
//! firewall would read at its start.

use std::collections::BTreeSet;

use tweed_core::agent_state::{AGENT_STATE_FILE, PodCidrs};
use tweed_core::family::Family;
use tweed_core::problem::Problem;
use tweed_core::{limits, regular_file};
use tweed_diagnosis::{Packets, Vxlan, iptables_legacy, nf_tables::Drops};
use tweed_netlink::Error;

use super::{Outcome, incomplete, ok};
use crate::places::Places;

/// `has_direct` says that what pods of other nodes send comes in by an uplink.
pub(super) fn find(places: &Places, vxlan: Option<Vxlan>, has_direct: bool) -> Vec<Outcome> {
    let pods = families(places);
    let mut findings = live(&Packets {
        direct: if has_direct {
            pods.clone()
        } else {
            BTreeSet::new()
        },
        pods,
        vxlan,
        // Which pod CIDRs other nodes have, and how they are reached, the agent knows.
        flows: Vec::new(),
    });
    if findings.is_empty() {
        findings.push(ok(
            "no other table drops what pods send or get, or VXLAN packets between nodes",
        ));
    }
    findings
}

/// The families of pods' addresses: those of the pod CIDRs that the agent of this machine
/// has, or both where none is known.
fn families(places: &Places) -> BTreeSet<Family> {
    let read = regular_file::read(&places.run_dir.join(AGENT_STATE_FILE), limits::STATE).ok();
    let state = read.and_then(|text| serde_json::from_slice::<PodCidrs>(&text).ok());
    let cidrs = state.unwrap_or_default().pod_cidrs;
    if cidrs.is_empty() {
        [Family::V4, Family::V6].into()
    } else {
        cidrs.iter().map(|cidr| Family::of(cidr.ip())).collect()
    }
}

/// What the rules drop that are in the kernel.
fn live(packets: &Packets) -> Vec<Outcome> {
    let mut findings = match drops(packets) {
        Ok(problems) => problems.into_iter().map(Err).collect(),
        Err(error) => vec![incomplete(
            "nftables",
            format!("it is not known what other tables drop: {error}"),
        )],
    };
    match iptables_legacy::drops(packets) {
        Ok(problems) => findings.extend(problems.into_iter().map(Err)),
        Err(error) => findings.push(incomplete(
            "iptables-legacy",
            format!("it is not known what the old iptables drops: {error}"),
        )),
    }
    findings
}

fn drops(packets: &Packets) -> Result<Vec<Problem>, Error> {
    let mut drops = Drops::open()?;
    drops.problems(packets).map(<[Problem]>::to_vec)
}
