//! Tables of other programs that drop forwarded packets: Docker, ufw, firewalld, or
//! rules written by hand. The agent looks for them continuously.

use std::path::Path;

use tweed_core::problem::Problem;
use tweed_diagnosis::iptables_legacy;
use tweed_nft::{Error, Table};

use super::Finding;

const CHECK: &str = "firewall";

pub(super) fn find(run_dir: &Path, nft: &Path) -> Vec<Finding> {
    let mut findings = match drops(run_dir, nft) {
        Ok(problems) => problems.into_iter().map(wrong).collect(),
        Err(error) => vec![Finding::incomplete(
            CHECK,
            "nftables",
            format!("it is not known what other tables drop: {error}"),
        )],
    };
    match iptables_legacy::forward_drops() {
        Ok(problems) => findings.extend(problems.into_iter().map(wrong)),
        Err(error) => findings.push(Finding::incomplete(
            CHECK,
            "iptables-legacy",
            format!("it is not known what the old iptables drops: {error}"),
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

fn drops(run_dir: &Path, nft: &Path) -> Result<Vec<Problem>, Error> {
    Table::open(run_dir, nft)?.foreign_drops()
}

fn wrong(problem: Problem) -> Finding {
    Finding::wrong(CHECK, problem)
}
