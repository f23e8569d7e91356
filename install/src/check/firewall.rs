//! Tables of others that drop what is forwarded: Docker, ufw, firewalld, or a
//! person's own. The agent looks for them too, all the time.

use tweed_core::problem::Problem;
use tweed_diagnosis::forward_drop::ForwardDrops;
use tweed_diagnosis::iptables_legacy;
use tweed_netlink::Error;

use super::Finding;

const CHECK: &str = "firewall";

pub(super) fn find() -> Vec<Finding> {
    let mut findings = match drops() {
        Ok(problems) => problems.into_iter().map(warning).collect(),
        Err(error) => vec![Finding::warning(
            CHECK,
            format!("what other tables drop is not known: {error}"),
            "run it as root",
        )],
    };
    match iptables_legacy::forward_drops() {
        Ok(problems) => findings.extend(problems.into_iter().map(warning)),
        Err(error) => findings.push(Finding::warning(
            CHECK,
            format!("what the old iptables drops is not known: {error}"),
            "run it as root",
        )),
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            "no other table drops what pods send or get",
        ));
    }
    findings
}

fn drops() -> Result<Vec<Problem>, Error> {
    let mut drops = ForwardDrops::open()?;
    drops.problems().map(<[Problem]>::to_vec)
}

fn warning(problem: Problem) -> Finding {
    Finding::warning(CHECK, problem.message, problem.cure)
}
