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

use tweed_component::drops::Owner;
use tweed_core::family::Family;
use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_planner::services::desired::Desired;

pub use held::{Difference, Held, held};
pub use table::ServicesTable;

use crate::drops;
use crate::schema;
use crate::table::{Set, Skeleton};
use crate::tables::SERVICES_TABLE;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 1;

/// The table without elements, with chains for these timeouts of session affinity, in
/// seconds, beside the default. With `log` packets are logged before they are dropped.
fn skeleton(timeouts: &BTreeSet<u32>, log: bool) -> Skeleton {
    let counters = drops::counters(Owner::Services);
    let chains = rules::chains(timeouts, log);
    Skeleton::new(SERVICES_TABLE, FORMAT, declarations(), counters, chains)
}

/// The declarations of all sets and maps.
fn declarations() -> Vec<Set> {
    let others = Family::BOTH.map(clients::declaration).into_iter();
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
