//! Machines that come and go, each with objects of others that tweed must leave alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use tweed_lab::{LabError, Netns, Snapshot};

use super::World;

/// Size of each node's disk in megabytes: it is in memory, and actions fill it.
const DISK_MEGABYTES: u32 = 4;

/// Objects of somebody else, of every kind that tweed has too. Each line of a snapshot
/// that belongs to them contains one of [`FOREIGN_MARKS`].
const FOREIGN_OBJECTS: &[&str] = &[
    "link add foreign0 type veth peer name foreign2",
    "link set foreign2 up",
    "link set foreign0 group 116 up",
    "addr add 203.0.113.1/24 dev foreign0",
    "addr add 2001:db8:99::1/64 dev foreign0 nodad",
    "route add 203.0.113.128/25 via 203.0.113.2",
    "route add 203.0.114.0/24 via 203.0.113.2 proto 116 table 99",
    "route add unreachable 203.0.115.0/24 metric 4294967295",
    "rule add from 203.0.113.7 lookup 99",
    "neigh add 203.0.113.3 lladdr 02:00:00:00:00:03 dev foreign0 nud permanent",
    "link add foreign1 type vxlan id 99 dstport 4790 local 203.0.113.1 nolearning",
    "link set foreign1 up",
];

const FOREIGN_TABLE: &str = "table inet foreign {\n chain forward {\n type filter hook forward \
    priority 10; policy accept;\n ip daddr 203.0.113.9 counter accept\n }\n}\n";

/// What a line of a snapshot contains if it is about a foreign object.
const FOREIGN_MARKS: &[&str] = &[
    "foreign0",
    "foreign1",
    "foreign2",
    "\"foreign\"",
    "203.0.11",
    "2001:db8:99:",
];

/// What a line of a snapshot contains that changes when a node begins to forward IPv6:
/// the kernel then joins the groups of routers on every link, and has anycast addresses.
const FOLLOWS_FORWARDING: &[&str] = &[
    "forwarding =",
    "accept_ra =",
    "\"mac\":\"33:33:",
    "\"type\":\"anycast\"",
];

impl World {
    /// Connects a new machine as node `index`, with pods of both families. It is not in
    /// the node file yet and has no agent; [`World::remember_foreign`] comes before both.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn plug(&mut self, index: u8) -> Result<(), LabError> {
        let cidrs = self.free_cidrs(index);
        self.cluster.plug(index)?;
        // A small disk of its own, so that it can be full.
        let disk = format!("disk{index}");
        let path = self.cluster.lab().folder().join(&disk);
        if path.exists() {
            remove_content(&path)?;
        } else {
            self.cluster.lab().small_tmpfs(&disk, DISK_MEGABYTES)?;
        }
        let entry = self.cluster.entry(index)?;
        let run = entry.node.run_dir();
        fs::remove_dir(&run)
            .and_then(|()| symlink(&path, &run))
            .map_err(|e| LabError::file("replace", &run, e))?;
        entry.manifest.pod_cidrs = cidrs;
        let netns = entry.node.netns();
        netns.ip(FOREIGN_OBJECTS)?;
        netns.sh("bridge fdb append 02:00:00:00:00:04 dev foreign1 dst 203.0.113.4")?;
        netns.nft(FOREIGN_TABLE)?;
        Ok(())
    }

    /// Remembers the foreign objects of nodes that were just connected, as they are once the
    /// kernel has brought up their links. It waits for all nodes at the same time.
    ///
    /// # Errors
    /// A namespace cannot be read, or goes on changing.
    pub fn remember_foreign(&mut self, indexes: &[u8]) -> Result<(), LabError> {
        let settled = thread::scope(|scope| {
            let look = |index: &u8| {
                let netns = self.cluster[*index].node.netns();
                scope.spawn(|| Snapshot::settled(netns))
            };
            let looks: Vec<_> = indexes.iter().map(look).collect();
            let ends = looks.into_iter().map(|look| match look.join() {
                Ok(settled) => settled.map(only_foreign),
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.collect::<Result<Vec<_>, _>>()
        })?;
        self.foreign.retain(|(own, _)| !indexes.contains(own));
        self.foreign.extend(indexes.iter().copied().zip(settled));
        Ok(())
    }

    /// Pod CIDRs for node `index` that no other node has.
    fn free_cidrs(&self, index: u8) -> Vec<String> {
        let of = |third: u8| {
            vec![
                format!("10.244.{third}.0/24"),
                format!("fd00:10:244:{third}::/64"),
            ]
        };
        let nodes = self.cluster.nodes().values();
        let taken: Vec<_> = nodes
            .map(|entry| entry.manifest.pod_cidrs.clone())
            .collect();
        let candidates = std::iter::once(index).chain(20..).map(of);
        let mut free = candidates.filter(|cidrs| !taken.contains(cidrs));
        free.next().unwrap_or_default()
    }

    /// Takes node `index` and its pods away, as a machine that is lost.
    ///
    /// # Errors
    /// The node file cannot be written.
    pub fn unplug(&mut self, index: u8) -> Result<(), LabError> {
        self.pods.retain(|pod| pod.node != index);
        self.foreign.retain(|(own, _)| *own != index);
        self.cluster.remove_node(index)
    }
}

/// The objects of a node that are somebody else's.
///
/// # Errors
/// The namespace cannot be read.
pub fn foreign_objects(netns: &Netns) -> Result<Snapshot, LabError> {
    Snapshot::of(netns).map(only_foreign)
}

fn only_foreign(all: Snapshot) -> Snapshot {
    let contains = |line: &str, marks: &[&str]| marks.iter().any(|mark| line.contains(mark));
    all.without(|line| contains(line, FOLLOWS_FORWARDING) || !contains(line, FOREIGN_MARKS))
}

fn remove_content(folder: &std::path::Path) -> Result<(), LabError> {
    let failed = |e| LabError::file("empty", folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(failed)?;
    }
    Ok(())
}
