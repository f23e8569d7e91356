//! Tables of other programs that drop forwarded packets: Docker, ufw, firewalld, or
//! rules written by hand. The agent looks for them continuously.

use std::path::Path;

use tweed_core::problem::Problem;
use tweed_diagnosis::iptables_legacy;
use tweed_nft::{Error, Table};

use super::{Outcome, incomplete, ok};

pub(super) fn find(run_dir: &Path, nft: &Path) -> Vec<Outcome> {
    let mut findings = match drops(run_dir, nft) {
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

fn drops(run_dir: &Path, nft: &Path) -> Result<Vec<Problem>, Error> {
    Table::open(run_dir, nft)?.foreign_drops()
}
