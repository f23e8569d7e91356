//! The state of a cluster, for the diagnosis of a failure.

mod logs;

use std::fmt::Write;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::kubectl::condition;
use crate::machine::Machine;
use tweed_lab::LabError;

/// Command lines of kubectl. The agents' logs are read on the nodes, which works
/// without the API server and kubelet.
const CLUSTER_COMMANDS: &[&str] = &[
    "get nodes --output wide",
    "describe nodes",
    "get pods --all-namespaces --output wide",
    "get events --all-namespaces --sort-by=.lastTimestamp",
];

/// Added to each command line, because the API server may hang.
const REQUEST_TIMEOUT: &str = "--request-timeout=20s";

/// Commands that are run on each node.
const NODE_COMMANDS: &[&str] = &[
    "ls -l /etc/cni/net.d /opt/cni/bin",
    "ls -lR /run/tweed",
    "cat /run/tweed/agent.json",
    "ip -details link show",
    "ip address show",
    "ip route show table all",
    "ip neighbour show",
    "bridge fdb show",
    "nft list table inet tweed",
];

/// Maximum number of pods that are described if they are not Ready: further ones
/// usually have the same cause.
const MAX_DESCRIBED_PODS: usize = 10;

/// Commands and their output, at one time.
#[derive(Debug, Default)]
pub struct Report {
    sections: Vec<(String, String)>,
}

impl Report {
    /// All outputs, of each only the last `lines` lines: the end usually shows more
    /// than the beginning.
    #[must_use]
    pub fn text(&self, lines: usize) -> String {
        let mut text = String::new();
        for (title, output) in &self.sections {
            let all: Vec<&str> = output.lines().collect();
            let tail = all[all.len().saturating_sub(lines)..].join("\n    ");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "── {title}\n    {tail}");
        }
        text
    }

    fn add(&mut self, title: impl Into<String>, output: Result<String, LabError>) {
        let text = output.unwrap_or_else(|error| error.chain());
        self.sections.push((title.into(), text));
    }
}

impl Cluster {
    /// Nodes, pods and events, the logs of the control plane, and of each node its
    /// logs, its agents' logs and its kernel state. A command that fails has its error
    /// as its output.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        let kubectl = |line: &str| self.kubectl().sh(&format!("{line} {REQUEST_TIMEOUT}"));
        for line in CLUSTER_COMMANDS {
            report.add(format!("kubectl {line}"), kubectl(line));
        }
        let all = format!("pods --all-namespaces {REQUEST_TIMEOUT}");
        match self.kubectl().list(&all) {
            Err(error) => report.add("pods that are not Ready", Err(error)),
            Ok(pods) => {
                for (namespace, pod) in not_ready(&pods).take(MAX_DESCRIBED_PODS) {
                    let line = format!("describe pod --namespace {namespace} {pod}");
                    report.add(format!("kubectl {line}"), kubectl(&line));
                }
            }
        }
        report
            .sections
            .extend(logs::in_folder(self.control_folder()));
        for node in self.nodes() {
            node.add_to(&mut report);
        }
        report
    }
}

impl Machine {
    fn add_to(&self, report: &mut Report) {
        if let Err(ended) = self.check() {
            // Programs that still run are queried nevertheless.
            report.add(self.name(), Err(ended));
        }
        for line in NODE_COMMANDS {
            let title = format!("{}: {line}", self.name());
            report.add(title, self.sh(line));
        }
        report.sections.extend(logs::in_folder(self.folder()));
        let pods = self.host_path("/var/log/pods");
        report.sections.extend(logs::of_agents(&pods));
    }

    /// Resident memory of all processes of a program in this node, in kilobytes.
    ///
    /// # Errors
    /// The node does not run.
    pub fn resident_kilobytes(&self, program: &str) -> Result<u64, LabError> {
        // `ps` fails if there is no such process.
        let line = format!("ps -C {program} -o rss= || true");
        let text = self.sh(&line)?;
        Ok(text
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
            .sum())
    }
}

/// Namespace and name of the pods that neither are Ready nor have succeeded.
fn not_ready(pods: &[Value]) -> impl Iterator<Item = (&str, &str)> {
    pods.iter()
        .filter(|pod| condition(pod, "Ready") != Some("True"))
        .filter(|pod| pod["status"]["phase"] != "Succeeded")
        .filter_map(|pod| {
            let meta = &pod["metadata"];
            Some((meta["namespace"].as_str()?, meta["name"].as_str()?))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_output_is_cut_to_its_end_and_an_error_is_an_output() {
        let mut report = Report::default();
        report.add("numbers", Ok("1\n2\n3\n".to_owned()));
        report.add("node", Err(LabError::NotRoot));
        let text = report.text(2);
        let refused = LabError::NotRoot.chain();
        let expected = format!("── numbers\n    2\n    3\n── node\n    {refused}\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn pods_that_wait_or_have_failed_are_described_and_others_are_not() {
        let pod = |name: &str, phase: &str, ready: Option<&str>| {
            let conditions = ready.map(|status| json!({ "type": "Ready", "status": status }));
            json!({
                "metadata": { "namespace": "n", "name": name },
                "status": { "phase": phase, "conditions": conditions.into_iter().collect::<Vec<_>>() },
            })
        };
        let pods = [
            pod("serves", "Running", Some("True")),
            pod("starts", "Running", Some("False")),
            pod("waits", "Pending", None),
            pod("done", "Succeeded", Some("False")),
            pod("broke", "Failed", Some("False")),
        ];
        let found: Vec<_> = not_ready(&pods).collect();
        assert_eq!(found, [("n", "starts"), ("n", "waits"), ("n", "broke")]);
    }
}
