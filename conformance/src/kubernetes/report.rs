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

/// Lines of one answer: the end says more than the beginning.
const MOST_LINES: usize = 60;

impl Cluster {
    /// The state of nodes, pods and events, the agents' logs, and of each node
    /// its part of the kernel's state.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        for line in OF_CLUSTER {
            section(
                &mut text,
                &format!("kubectl {line}"),
                self.kubectl().sh(line),
            );
        }
        for node in self.nodes() {
            if let Err(ended) = node.check() {
                section(&mut text, node.name(), Err(ended));
                continue;
            }
            for line in OF_NODE {
                section(
                    &mut text,
                    &format!("{}: {line}", node.name()),
                    node.sh(line),
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
        let line = format!(
            "for pid in $(pgrep -x {program}); do sed -n 's/^VmRSS: *\\([0-9]*\\).*/\\1/p' /proc/$pid/status; done"
        );
        let text = self.sh(&line)?;
        Ok(text
            .lines()
            .filter_map(|line| line.parse::<u64>().ok())
            .sum())
    }
}

fn section(text: &mut String, title: &str, answer: Result<String, LabError>) {
    let answer = answer.unwrap_or_else(|error| error.chain());
    let lines: Vec<&str> = answer.lines().collect();
    let tail = lines[lines.len().saturating_sub(MOST_LINES)..].join("\n    ");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "── {title}\n    {tail}");
}
