//! What a person needs when something in a cluster has failed.

use std::fmt::Write;

use super::cluster::Cluster;
use super::machine::Machine;
use crate::error::LabError;

/// What kubectl is asked, a command line each.
const OF_CLUSTER: &[&str] = &[
    "get nodes --output wide",
    "get pods --all-namespaces --output wide",
    "get events --all-namespaces --sort-by=.lastTimestamp",
    "logs --namespace kube-system --selector app.kubernetes.io/name=tweed --all-containers --prefix --tail=40 --ignore-errors",
];

/// What each node is asked.
const OF_NODE: &[&str] = &[
    "ls -l /etc/cni/net.d /opt/cni/bin /run/tweed",
    "cat /run/tweed/agent.json",
    "ip -brief address",
    "ip route show table all proto 116",
    "bridge fdb show dev tweed.1",
    "nft list table inet tweed",
];

impl Cluster {
    /// The state of nodes, pods and events, the agents' logs, and of each node
    /// its part of the kernel's state. Of each answer only the last lines, as
    /// many as asked for: the end says more than the beginning.
    #[must_use]
    pub fn report(&self, lines: usize) -> String {
        let mut text = String::new();
        for question in OF_CLUSTER {
            section(
                &mut text,
                lines,
                &format!("kubectl {question}"),
                self.kubectl().sh(question),
            );
        }
        for node in self.nodes() {
            if let Err(ended) = node.check() {
                section(&mut text, lines, node.name(), Err(ended));
                continue;
            }
            for question in OF_NODE {
                section(
                    &mut text,
                    lines,
                    &format!("{}: {question}", node.name()),
                    node.sh(question),
                );
            }
        }
        text
    }
}

impl Machine {
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

fn section(text: &mut String, most: usize, title: &str, answer: Result<String, LabError>) {
    let answer = answer.unwrap_or_else(|error| error.chain());
    let lines: Vec<&str> = answer.lines().collect();
    let tail = lines[lines.len().saturating_sub(most)..].join("\n    ");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "── {title}\n    {tail}");
}
