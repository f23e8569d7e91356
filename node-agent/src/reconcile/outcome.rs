//! What one reconciler did and found. Every reconciler gives an [`Outcome`];
//! [`super::Reconcilers`] merges them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use tweed_core::mac::Mac;
use tweed_core::problem::Problem;
use tweed_netlink::Error;

/// Maximum number of names of written objects that are kept of each kind.
const MAX_NAMES: usize = 16;

/// What a write is about: the label `kind` of the metrics, and of log lines.
///
/// It names what is written. What is read in one dump is a
/// [`MirrorPart`](super::kernel::mirror::MirrorPart): connected routes are read
/// and never written; sysctls and the nftables table are not in the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A link: the VXLAN device, or the host end of a pod's link.
    Link,
    /// An address of the VXLAN device.
    Address,
    /// A route.
    Route,
    /// A neighbour.
    Neighbour,
    /// An FDB entry.
    Fdb,
    /// A sysctl.
    Sysctl,
    /// An element of the table `inet tweed`, or all its rules together.
    Nftables,
    /// A program of the fast path at a link.
    Program,
}

impl ObjectKind {
    /// The value of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Address => "address",
            Self::Route => "route",
            Self::Neighbour => "neighbour",
            Self::Fdb => "fdb",
            Self::Sysctl => "sysctl",
            Self::Nftables => "nftables",
            Self::Program => "program",
        }
    }
}

/// What a part of the way to another node is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// First address of a pod CIDR: a route or a neighbour is to be there.
    Pods(IpAddr),
    /// MAC of a VXLAN device: an FDB entry is to be there.
    Vtep(Mac),
    /// A part of a way that is to be removed, to a node that may be gone.
    Old,
}

/// A write that the kernel refused.
#[derive(Debug)]
pub struct RefusedWrite {
    /// The kernel's answer, which names the object.
    pub error: Error,
    /// What it is about.
    pub kind: ObjectKind,
    /// What it means.
    pub problem: Problem,
    /// What it would have done to the way to another node, if anything.
    pub way: Option<Way>,
}

/// When to reconcile again, beside what the schedule does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retry {
    /// Something failed: a full resync has to follow.
    pub resync: bool,
    /// Latest time of the next poll; none if the poll interval is early enough.
    pub poll_by: Option<Instant>,
}

/// What a reconciler did and found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of writes that succeeded, by kind.
    pub written: BTreeMap<ObjectKind, u64>,
    /// How often objects with names were written, by kind: at most [`MAX_NAMES`] of each.
    pub names: BTreeMap<ObjectKind, BTreeMap<String, u64>>,
    /// Number of objects that are as planned, for the kinds that were compared.
    pub objects: BTreeMap<ObjectKind, usize>,
    /// Writes that the kernel refused.
    pub refused: Vec<RefusedWrite>,
    /// What is wrong besides.
    pub problems: Vec<Problem>,
    /// When to reconcile again.
    pub retry: Retry,
}

impl Outcome {
    /// Nothing was done, and this is wrong.
    pub fn of(problems: Vec<Problem>) -> Self {
        Self {
            problems,
            ..Self::default()
        }
    }

    /// Counts `count` writes of an object that succeeded.
    pub fn wrote(&mut self, kind: ObjectKind, count: u64, object: &str) {
        if count > 0 {
            *self.written.entry(kind).or_default() += count;
            self.name(kind, object, count);
        }
    }

    fn name(&mut self, kind: ObjectKind, object: &str, count: u64) {
        let names = self.names.entry(kind).or_default();
        if names.len() < MAX_NAMES || names.contains_key(object) {
            *names.entry(object.to_owned()).or_default() += count;
        }
    }

    /// Adds a problem that calls for a full resync.
    pub fn fail(&mut self, problem: Problem) {
        self.retry.resync = true;
        self.problems.push(problem);
    }

    /// Whether a full resync has to follow.
    pub fn failed(&self) -> bool {
        self.retry.resync || !self.refused.is_empty()
    }

    /// Adds what another reconciler did and found. Where both counted objects
    /// of a kind, the later count holds.
    pub fn merge(&mut self, other: Self) {
        for (kind, count) in other.written {
            *self.written.entry(kind).or_default() += count;
        }
        for (kind, names) in other.names {
            for (name, count) in names {
                self.name(kind, &name, count);
            }
        }
        self.objects.extend(other.objects);
        self.refused.extend(other.refused);
        self.problems.extend(other.problems);
        self.retry.resync |= other.retry.resync;
        let times = self.retry.poll_by.into_iter().chain(other.retry.poll_by);
        self.retry.poll_by = times.min();
    }

    /// Everything that is wrong, refused writes included.
    pub fn all_problems(&self) -> impl Iterator<Item = &Problem> {
        let refused = self.refused.iter().map(|write| &write.problem);
        self.problems.iter().chain(refused)
    }
}
