//! Tables of other programs that drop forwarded packets: Docker, ufw, firewalld, or
//! rules written by hand. The agent looks for them continuously.

use tweed_core::problem::Problem;
use tweed_diagnosis::{forward_drop::ForwardDrops, iptables_legacy};
use tweed_netlink::Error;

use super::{Outcome, incomplete, ok};

pub(super) fn find() -> Vec<Outcome> {
    let mut findings = match drops() {
        Ok(problems) => problems.into_iter().map(Err).collect(),
        Err(error) => vec![incomplete(
            "nftables",
            format!("it is not known what other tables drop: {error}"),
        )],
    };
    match iptables_legacy::forward_drops() {
        Ok(problems) => findings.extend(problems.into_iter().map(Err)),
        Err(error) => findings.push(incomplete(
            "iptables-legacy",
            format!("it is not known what the old iptables drops: {error}"),
        )),
    }
    if findings.is_empty() {
        findings.push(ok("no other table drops what pods send or get"));
    }
    findings
}

fn drops() -> Result<Vec<Problem>, Error> {
    let mut drops = ForwardDrops::open()?;
    drops.problems().map(<[Problem]>::to_vec)
}
