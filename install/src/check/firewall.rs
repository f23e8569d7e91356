//! Tables of other programs that drop forwarded packets, or the VXLAN packets of the
//! overlay: Docker, ufw, firewalld, or rules written by hand. The agent looks for them
//! continuously. What firewalls are configured to do is looked at as well, since it holds
//! when they start; but not where their rules drop VXLAN packets already.

use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{Vxlan, iptables_legacy, nf_tables::Drops};
use tweed_netlink::Error;

use super::{Outcome, inbound, incomplete, ok};
use crate::places::Places;

pub(super) fn find(places: &Places, vxlan: Vxlan) -> Vec<Outcome> {
    let mut findings = live(vxlan);
    let is_inbound = |problem: &Problem| problem.kind == ProblemKind::InboundDrop;
    let mut problems = findings.iter().filter_map(|finding| finding.as_ref().err());
    if !problems.any(is_inbound) {
        findings.extend(inbound::find(places, vxlan.port));
    }
    if findings.iter().all(Result::is_ok) {
        findings.push(ok(
            "no other table drops what pods send or get, or VXLAN packets between nodes",
        ));
    }
    findings
}

/// What the rules drop that are in the kernel.
fn live(vxlan: Vxlan) -> Vec<Outcome> {
    let mut findings = match drops(vxlan) {
        Ok(problems) => problems.into_iter().map(Err).collect(),
        Err(error) => vec![incomplete(
            "nftables",
            format!("it is not known what other tables drop: {error}"),
        )],
    };
    match iptables_legacy::drops(Some(vxlan)) {
        Ok(problems) => findings.extend(problems.into_iter().map(Err)),
        Err(error) => findings.push(incomplete(
            "iptables-legacy",
            format!("it is not known what the old iptables drops: {error}"),
        )),
    }
    findings
}

fn drops(vxlan: Vxlan) -> Result<Vec<Problem>, Error> {
    let mut drops = Drops::open()?;
    drops.problems(Some(vxlan)).map(<[Problem]>::to_vec)
}
