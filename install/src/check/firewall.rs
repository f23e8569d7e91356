//! Tables of others that drop what is forwarded: Docker, ufw, firewalld, or a
//! person's own. The agent looks for them too, all the time.

use std::fs;
use std::path::Path;

use tweed_agent::nft::{Error, Table};
use tweed_agent::problem::Problem;

use super::Finding;

const CHECK: &str = "firewall";
/// Tables of the old iptables in this namespace, one a line.
const LEGACY_TABLES: &str = "/proc/net/ip_tables_names";

pub(super) fn find(run_dir: &Path, nft: &Path) -> Vec<Finding> {
    let mut findings = match drops(run_dir, nft) {
        Ok(problems) => problems.into_iter().map(warning).collect(),
        Err(error) => vec![Finding::warning(
            CHECK,
            format!("what other tables drop is not known: {error}"),
            "run it as root",
        )],
    };
    findings.extend(legacy(
        &fs::read_to_string(LEGACY_TABLES).unwrap_or_default(),
    ));
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

fn warning(problem: Problem) -> Finding {
    Finding::warning(CHECK, problem.message, problem.cure)
}

/// The old iptables cannot be looked into without its program.
fn legacy(tables: &str) -> Option<Finding> {
    tables.lines().any(|table| table == "filter").then(|| {
        Finding::warning(
            CHECK,
            "rules of the old iptables are loaded, and whether they drop forwarded packets is not \
             known",
            "see `iptables-legacy -S FORWARD`; if it drops, run `iptables-legacy -I FORWARD -i tw+ \
             -j ACCEPT && iptables-legacy -I FORWARD -o tw+ -j ACCEPT` after each boot",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_filter_table_of_the_old_iptables_matters() {
        assert!(legacy("nat\nfilter\n").is_some());
        assert!(legacy("nat\nmangle\n").is_none());
        assert!(legacy("").is_none());
    }
}
