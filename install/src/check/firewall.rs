//! Tables of other programs that drop forwarded packets, or the VXLAN packets of the
//! overlay: Docker, ufw, firewalld, or rules written by hand. The agent looks for them
//! continuously.

use tweed_core::problem::Problem;
use tweed_diagnosis::{Vxlan, iptables_legacy, nf_tables::Drops};
use tweed_netlink::Error;

use super::{Outcome, incomplete, ok};

pub(super) fn find(vxlan: Vxlan) -> Vec<Outcome> {
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
    if findings.is_empty() {
        findings.push(ok(
            "no other table drops what pods send or get, or VXLAN packets between nodes",
        ));
    }
    findings
}

fn drops(vxlan: Vxlan) -> Result<Vec<Problem>, Error> {
    let mut drops = Drops::open()?;
    drops.problems(Some(vxlan)).map(<[Problem]>::to_vec)
}
