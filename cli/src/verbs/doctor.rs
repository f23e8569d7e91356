//! `doctor`: what stands in tweed's way on each node, what keeps changing its objects, and
//! what does not fit together between the nodes.

mod compare;
mod render;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::message::Drift;
use tweed_core::problem::ProblemKind;
use tweed_netlink::{Socket, link};

use crate::answered::{Answered, Unanswered, reports};
use crate::cluster::Cluster;
use crate::exit::Exit;
use crate::node::Node;
use crate::output::Page;
use crate::verb::{Verb, show};
use crate::verbs::status;

const EXAMPLES: &str = "\
Examples:
  All nodes, and whether they fit together:
    tweedctl doctor

  This machine, as root:
    tweedctl doctor --run-dir /run/tweed

  A machine whose runtime looks for plugins in other folders, such as k3s:
    TWEED_CNI_BIN_DIR=/opt/k3s/bin TWEED_CNI_CONF_DIR=/opt/k3s/net.d \\
      tweedctl doctor --run-dir /run/tweed

In a cluster tweed-install check runs in the agents' containers. What it does not see from
there is listed as not checked: tweed-install check on the node itself looks at that too.
It ends with 1 if anything was found, and with 4 if a node does not answer or anything else
could not be looked at.";

/// The program that checks a node, beside this one.
const CHECK: &str = "tweed-install";
/// Checks that look at files and programs of the host, which a container does not see.
const HOST_CHECKS: [&str; 1] = ["manager"];
/// How the names of links of other networks begin.
const FOREIGN_LINKS: [&str; 9] = [
    "antrea-",
    "cali",
    "cilium_",
    "cni0",
    "flannel.",
    "kube-bridge",
    "lxc_health",
    "ovn-k8s",
    "weave",
];

/// The arguments of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {}

/// What was found at one node, or about all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Report {
    /// What was looked at.
    pub findings: Vec<Finding>,
    /// What was not, and why.
    pub not_checked: Vec<String>,
    /// Whether that is more than what `tweed-install check` does not see from a container.
    pub incomplete: bool,
    /// What was put back since the agent started.
    pub drift: Vec<Drift>,
    /// The version of the agent that runs; none if it does not answer.
    pub agent: Option<String>,
    /// The node's time, in milliseconds since 1970.
    pub time_ms: u64,
}

/// How bad a finding is. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// tweed works, but perhaps not as intended.
    Warning,
    /// tweed does not work.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// A word for what was looked at.
    pub check: String,
    /// The word of the kind of problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    fn warning(check: &str, message: String, cure: &str) -> Self {
        Self {
            level: Level::Warning,
            check: check.to_owned(),
            kind: None,
            message,
            cure: Some(cure.to_owned()),
        }
    }
}

/// What `tweed-install check` prints.
#[derive(Debug, Deserialize)]
struct Checked {
    findings: Vec<Finding>,
}

/// The program that checks a node: beside this one, or else wherever it is found.
pub(super) fn check_program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name(CHECK);
    if beside.exists() {
        beside
    } else {
        CHECK.into()
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
}

impl Verb for Doctor {
    type Report = Report;
    const NAME: &'static str = "doctor";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        let mut report = Report {
            time_ms: now_ms(),
            ..Report::default()
        };
        let in_container = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        match check(&node.run_dir) {
            Ok(findings) => report.add(findings, in_container),
            Err(why) => report.leave_out(why),
        }
        match foreign_links() {
            Ok(found) => report.findings.extend(found),
            Err(error) => report.leave_out(format!("links of other networks: {error}")),
        }
        match status::Report::of(node) {
            Ok(status) => {
                if status.agent.is_none() {
                    report.leave_out("the agent: it does not answer".to_owned());
                }
                report.agent = status.agent;
                report.drift = status.drift;
            }
            Err(why) => report.leave_out(format!("the agent: {why}")),
        }
        Ok(report)
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        render::render(answers, page)
    }

    fn exit(&self, answers: &[Answered<Report>]) -> Exit {
        let mut reports = reports(answers).map(|(_, report)| report);
        let is_bad = |report: &Report| {
            let mut levels = report.findings.iter().map(|finding| finding.level);
            levels.any(|level| level > Level::Ok) || !report.drift.is_empty()
        };
        if reports.clone().any(is_bad) {
            Exit::Findings
        } else if reports.any(|report| report.incomplete) {
            Exit::Undetermined
        } else {
            Exit::Fine
        }
    }
}

impl Doctor {
    /// All nodes of a cluster, and whether they fit together.
    ///
    /// # Errors
    /// The cluster cannot be asked, or the answer cannot be written.
    pub fn in_cluster(&self, cluster: &Cluster, page: &mut Page<'_>) -> Result<Exit> {
        let places = cluster.places()?;
        let begun = now_ms();
        let mut answers = self.remote(cluster)?;
        let findings = compare::findings(&places, &answers, begun..=now_ms());
        let all = Report {
            findings,
            ..Report::default()
        };
        answers.push((compare::ALL_NODES.to_owned(), Ok(all)));
        show(self, &answers, page)
    }
}

impl Report {
    /// Adds what could not be looked at.
    fn leave_out(&mut self, what: String) {
        self.not_checked.push(what);
        self.incomplete = true;
    }

    /// Adds what was found, and what could not be looked at for itself.
    fn add(&mut self, findings: Vec<Finding>, in_container: bool) {
        for finding in findings {
            let is_incomplete =
                finding.kind.as_deref() == Some(ProblemKind::CheckIncomplete.word());
            let of_host = in_container && HOST_CHECKS.contains(&finding.check.as_str());
            if is_incomplete {
                let Finding { check, message, .. } = finding;
                let what = format!("{check}: {message}");
                if in_container {
                    self.not_checked.push(what);
                } else {
                    self.leave_out(what);
                }
            } else if of_host && finding.level == Level::Ok {
                let check = finding.check;
                self.not_checked.push(format!(
                    "{check}: a container does not see the host's files and programs"
                ));
            } else {
                self.findings.push(finding);
            }
        }
    }
}

/// What `tweed-install check` finds.
fn check(run_dir: &Path) -> Result<Vec<Finding>, String> {
    let mut command = Command::new(check_program());
    command
        .args(["check", "--output", "json", "--run-dir"])
        .arg(run_dir);
    let output = command
        .output()
        .map_err(|error| format!("{CHECK} check: {error}"))?;
    let checked = serde_json::from_slice::<Checked>(&output.stdout);
    checked.map(|checked| checked.findings).map_err(|_| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("{CHECK} check: {}", complaint.trim())
    })
}

/// Links that another network has made, and perhaps left.
fn foreign_links() -> Result<Option<Finding>, tweed_netlink::Error> {
    let links = link::list(&mut Socket::open()?)?
        .into_iter()
        .map(|link| link.name);
    Ok(of_others(links))
}

fn of_others(names: impl Iterator<Item = String>) -> Option<Finding> {
    let is_foreign = |name: &String| FOREIGN_LINKS.iter().any(|prefix| name.starts_with(prefix));
    let mut foreign: Vec<String> = names.filter(is_foreign).collect();
    foreign.sort();
    let first = foreign.first()?;
    let more = match foreign.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::warning(
        "leftover",
        format!("another network has links here: {first}{more}"),
        "if that network is gone, delete them (ip link delete NAME), or reboot the node",
    ))
}

#[cfg(test)]
mod tests;
