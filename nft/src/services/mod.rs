//! The table of Services, `inet tweed-services`: which sets, maps and chains it has
//! ([`sets`], [`rules`]), and how it is kept ([`ServicesTable`]).

mod clients;
mod held;
mod known_numbers;
mod leads;
mod rules;
mod sets;
mod table;

use std::collections::BTreeSet;

use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_planner::services::desired::Desired;

pub use held::{Difference, Held, held};
pub use table::ServicesTable;

use crate::schema;
use crate::table::{Set, Skeleton};
use crate::tables::SERVICES_TABLE;
use crate::words::FAMILIES;
use rules::COUNTERS;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 1;

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

/// The table without elements, with chains for these timeouts of session affinity, in
/// seconds, beside the default.
fn skeleton(timeouts: &BTreeSet<u32>) -> Skeleton {
    let counters = COUNTERS.to_vec();
    let chains = rules::chains(timeouts);
    Skeleton::new(SERVICES_TABLE, FORMAT, declarations(), counters, chains)
}

/// The declarations of all sets and maps.
fn declarations() -> Vec<Set> {
    let others = FAMILIES.map(clients::declaration).into_iter();
    schema::declarations::<Desired>()
        .chain(others)
        .chain(leads::declarations())
        .collect()
}

/// The timeouts of session affinity, in seconds, beside the default, which always has its
/// chains.
fn timeouts(desired: &Desired) -> BTreeSet<u32> {
    let timeouts = desired.affinities.values().copied();
    timeouts.filter(is_other).collect()
}

fn is_other(timeout: &u32) -> bool {
    *timeout != DEFAULT_AFFINITY_SECONDS
}

#[cfg(test)]
mod tests;
