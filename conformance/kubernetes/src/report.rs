//! What a person needs when something in a cluster has failed.

mod logs;

use std::fmt::Write;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::kubectl::condition;
use crate::machine::Machine;
use tweed_lab::LabError;

/// What kubectl is asked, a command line each. What the agents say is read on
/// the nodes: it is there without the API server and kubelet, too.
const OF_CLUSTER: &[&str] = &[
    "get nodes --output wide",
    "describe nodes",
    "get pods --all-namespaces --output wide",
    "get events --all-namespaces --sort-by=.lastTimestamp",
];

/// Added to each: an API server that has hung is not waited for.
const NO_LONGER: &str = "--request-timeout=20s";

/// What each node is asked.
const OF_NODE: &[&str] = &[
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

/// Of so many pods that are not Ready all is told; more have the same cause.
const DESCRIBED: usize = 10;

/// What was to be seen at one moment: questions and their answers.
#[derive(Debug, Default)]
pub struct Report {
    sections: Vec<(String, String)>,
}

impl Report {
    /// All answers, of each only the last lines, at most as many as asked for:
    /// the end says more than the beginning.
    #[must_use]
    pub fn text(&self, lines: usize) -> String {
        let mut text = String::new();
        for (title, answer) in &self.sections {
            let all: Vec<&str> = answer.lines().collect();
            let tail = all[all.len().saturating_sub(lines)..].join("\n    ");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "── {title}\n    {tail}");
        }
        text
    }

    fn add(&mut self, title: impl Into<String>, answer: Result<String, LabError>) {
        let answer = answer.unwrap_or_else(|error| error.chain());
        self.sections.push((title.into(), answer));
    }
}

impl Cluster {
    /// The state of nodes, pods and events, the logs of the control plane, and
    /// of each node its logs, its agents' logs and its part of the kernel's
    /// state. What cannot be asked has the error as its answer.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        let ask = |question: &str| self.kubectl().sh(&format!("{question} {NO_LONGER}"));
        for question in OF_CLUSTER {
            report.add(format!("kubectl {question}"), ask(question));
        }
        let all = format!("pods --all-namespaces {NO_LONGER}");
        match self.kubectl().list(&all) {
            Err(error) => report.add("pods that are not Ready", Err(error)),
            Ok(pods) => {
                for (namespace, pod) in not_ready(&pods).take(DESCRIBED) {
                    let line = format!("describe pod --namespace {namespace} {pod}");
                    report.add(format!("kubectl {line}"), ask(&line));
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
            // What runs on can be asked all the same.
            report.add(self.name(), Err(ended));
        }
        for question in OF_NODE {
            let title = format!("{}: {question}", self.name());
            report.add(title, self.sh(question));
        }
        report.sections.extend(logs::in_folder(self.folder()));
        let pods = self.own("/var/log/pods");
        report.sections.extend(logs::of_agents(&pods));
    }

    /// Kilobytes of memory that the processes of a program in this node have
    /// resident, by the program's name.
    ///
    /// # Errors
    /// The node does not run.
    pub fn resident_kilobytes(&self, program: &str) -> Result<u64, LabError> {
        // It fails if there is none.
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
    fn each_answer_is_cut_to_its_end_and_an_error_is_an_answer() {
        let mut report = Report::default();
        report.add("numbers", Ok("1\n2\n3\n".to_owned()));
        report.add("node", Err(LabError::NotRoot));
        let text = report.text(2);
        let refused = LabError::NotRoot.chain();
        let expected = format!("── numbers\n    2\n    3\n── node\n    {refused}\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn pods_that_wait_or_have_failed_are_told_of_and_others_are_not() {
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
