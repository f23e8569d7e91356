//! Services in the table: which sets, maps and chains they add ([`sets`], [`rules`]),
//! what the sets hold ([`elements`]), and how they are kept ([`writer`]). All of it is in
//! the table only where Services are wanted.

mod elements;
mod held;
mod known_endpoints;
mod known_numbers;
mod leads;
mod rules;
mod sets;
mod writer;

use std::collections::BTreeSet;

use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_planner::services::desired::Desired;

pub use held::{Difference, Held, held};
pub(super) use rules::{chains, in_forward, in_input, in_postrouting};
pub(super) use writer::{Start, Writer};

use super::sets::FAMILIES;
use crate::element::Contents;
use crate::table::Set;

/// What the names of their sets begin with, in every version.
pub(super) const PREFIX: &str = "service_";

/// The counters of dropped packets, in the order of [`Refused`].
pub(super) const COUNTERS: [&str; 5] = rules::COUNTERS;

/// How many packets the rules of Services have dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// To a frontend with the traffic policy `Local` that has endpoints on other nodes
    /// only.
    pub no_local_endpoint: u64,
    /// To an address of Services that no Service has.
    pub unknown_address: u64,
    /// From a source that may not reach the frontend.
    pub source_not_allowed: u64,
    /// While the sets changed twice under one packet.
    pub unsettled: u64,
    /// Packets of TCP that belong to no flow that conntrack knows.
    pub invalid: u64,
}

impl From<[u64; COUNTERS.len()]> for Refused {
    /// Of the counts in the order of the counters.
    fn from(counts: [u64; COUNTERS.len()]) -> Self {
        let [
            no_local_endpoint,
            unknown_address,
            source_not_allowed,
            unsettled,
            invalid,
        ] = counts;
        Self {
            no_local_endpoint,
            unknown_address,
            source_not_allowed,
            unsettled,
            invalid,
        }
    }
}

/// The declarations of the sets and maps that the planner provides.
pub(super) fn provided() -> impl Iterator<Item = Set> {
    sets::all().map(sets::ServiceSet::declaration)
}

/// The declarations of their sets and maps.
pub(super) fn declarations() -> impl Iterator<Item = Set> {
    let others = FAMILIES.map(sets::clients).into_iter();
    provided().chain(others).chain(leads::declarations())
}

/// What those of them hold that no plan changes.
pub(super) fn contents() -> Contents {
    leads::contents()
}

/// The timeouts of session affinity, in seconds, beside the default, which always has its
/// chains.
pub(super) fn timeouts(desired: &Desired) -> BTreeSet<u32> {
    let timeouts = desired.affinities.values().copied();
    timeouts.filter(is_other).collect()
}

fn is_other(timeout: &u32) -> bool {
    *timeout != DEFAULT_AFFINITY_SECONDS
}

#[cfg(test)]
mod tests;
