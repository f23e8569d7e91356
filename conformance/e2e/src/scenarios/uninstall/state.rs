//! All that an installer may leave on a node, read with other eyes than its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tweed_lab::Snapshot;
use tweed_lab_kubernetes::Machine;

/// For kubelet and kube-proxy of a new node to have made all that they make.
const QUIET_LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Names, modes and contents; in `/run` without what containerd and the lab
/// keep there, and without the folder of containerd's cache of results, but with
/// what is in that.
const FILES: &str = r"
find /etc/cni /opt/cni /var/lib/cni /run \
    -path /run/containerd -prune -o -path /run/node -prune -o \
    ! -path /var/lib/cni/results -printf 'file %p %M %U:%G %l\n'
find /etc/cni /opt/cni -type f -exec sha256sum {} +
";

/// Every setting of the network, without what counts.
const SYSCTLS: &str = "grep -rs . /proc/sys/net | grep -v nf_conntrack_count";

/// A node at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    kernel: Snapshot,
    lines: BTreeSet<String>,
}

impl State {
    /// Reads a node: its network in the kernel, sysctls and files.
    pub fn of(node: &Machine) -> Result<Self> {
        let text = node.sh(FILES)? + &node.sh(SYSCTLS)?;
        Ok(Self {
            kernel: Snapshot::of(node.netns())?,
            lines: text.lines().map(str::to_owned).collect(),
        })
    }

    /// The same as soon as nothing changes any more.
    pub fn at_rest(node: &Machine) -> Result<Self> {
        let start = Instant::now();
        let mut last = Self::of(node)?;
        loop {
            std::thread::sleep(BETWEEN_LOOKS);
            let now = Self::of(node)?;
            let changes = last.changes(&now);
            if changes.is_empty() {
                return Ok(now);
            }
            if start.elapsed() > QUIET_LIMIT {
                bail!("{} does not come to rest: {changes:#?}", node.name());
            }
            last = now;
        }
    }

    /// What is different later: `-` is gone, `+` is new.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes = self.kernel.changes(&later.kernel);
        let gone = self.lines.difference(&later.lines);
        changes.extend(gone.map(|line| format!("- {line}")));
        let new = later.lines.difference(&self.lines);
        changes.extend(new.map(|line| format!("+ {line}")));
        changes
    }

    /// How many objects, settings and files that are.
    pub fn len(&self) -> usize {
        self.kernel.to_string().lines().count() + self.lines.len()
    }
}
