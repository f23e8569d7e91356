//! Everything that an installer may leave on a node, read by other programs than its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tweed_lab::Snapshot;
use tweed_lab_kubernetes::Machine;

/// Maximum time until kubelet and kube-proxy of a new node have created all of their
/// objects.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// Time between two comparisons.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Names, modes and contents of files. In `/run` those of containerd, of the lab and of
/// the program mount (which a newer one makes at its first use) are left out. The folder of
/// containerd's cache of results is left out, but not the files in it. Pins of programs and maps
/// are files of bpffs.
const FILES: &str = r"
find /etc/cni /opt/cni /var/lib/cni /run /sys/fs/bpf \
    -path /run/containerd -prune -o -path /run/node -prune -o -path /run/mount -prune -o \
    ! -path /var/lib/cni/results -printf 'file %p %M %U:%G %l\n'
find /etc/cni /opt/cni -type f -exec sha256sum {} +
";

/// All sysctls of the network except counters.
const SYSCTLS: &str = "grep -rs . /proc/sys/net | grep -v nf_conntrack_count";

/// The state of a node at one time.
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

    /// Reads a node repeatedly until its state does not change any more.
    pub fn when_stable(node: &Machine) -> Result<Self> {
        let start = Instant::now();
        let mut last = Self::of(node)?;
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let now = Self::of(node)?;
            let changes = last.changes(&now);
            if changes.is_empty() {
                return Ok(now);
            }
            if start.elapsed() > QUIET_LIMIT {
                bail!("{} still changes: {changes:#?}", node.name());
            }
            last = now;
        }
    }

    /// The differences to `later`: removed lines start with `-`, added ones with `+`.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes = self.kernel.changes(&later.kernel);
        let removed = self.lines.difference(&later.lines);
        changes.extend(removed.map(|line| format!("- {line}")));
        let added = later.lines.difference(&self.lines);
        changes.extend(added.map(|line| format!("+ {line}")));
        changes
    }

    /// The number of objects, sysctls and files.
    pub fn len(&self) -> usize {
        self.kernel.to_string().lines().count() + self.lines.len()
    }
}
