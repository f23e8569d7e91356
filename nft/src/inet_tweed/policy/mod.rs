//! Policy in the table: which sets, maps and chains it adds ([`sets`], [`rules`]), and
//! how they are kept ([`writer`]). All of it is in the table only while a policy exists.

mod generation;
mod marks;
mod rules;
mod sets;
mod steps;
mod writer;

use tweed_planner::policy::desired::Desired;

pub(super) use rules::{chains, in_forward, in_input, in_output};
pub(super) use writer::{Start, Writer};

use crate::table::Set;

/// The counters of dropped packets, in the order of [`Dropped`].
pub(super) const COUNTERS: [&str; 3] = rules::COUNTERS;

/// How many packets were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// By a policy of the pod that they were for.
    pub ingress: u64,
    /// By a policy of the pod that sent them.
    pub egress: u64,
    /// Of a local address that is not judged yet.
    pub isolated: u64,
}

/// What the table should hold of policy.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    /// The elements of its sets. The planner keeps them; the table has no copy.
    pub desired: &'a Desired,
    /// Whether dropped packets are logged.
    pub log: bool,
}

impl Policy<'_> {
    /// Whether the table has rules of policy.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.desired.active
    }
}

/// What the names of its sets begin with, in every version.
pub(super) const PREFIX: &str = "policy_";

/// The declarations of the sets and maps that the planner provides.
pub(super) fn provided() -> impl Iterator<Item = Set> {
    sets::all().map(sets::PolicySet::declaration)
}

/// The declarations of its sets and maps.
pub(super) fn declarations() -> impl Iterator<Item = Set> {
    provided().chain([generation::entry()])
}

#[cfg(test)]
mod tests;
