//! The table of policies, `inet tweed-policy`: which sets, maps and chains it has ([`sets`],
//! [`rules`]), and how it is kept ([`PolicyTable`]). It is there only while a policy exists.

mod generation;
mod marks;
mod rules;
mod sets;
mod steps;
mod table;

use tweed_component::drops::Owner;
use tweed_planner::policy::Desired;

use crate::drops;
use crate::schema;
use crate::table::{Set, Skeleton};
use crate::tables::POLICY_TABLE;
pub use table::{InForce, OnInForce, PolicyTable};

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 1;

/// The table without elements. With `log` packets are logged before they are dropped.
fn skeleton(log: bool) -> Skeleton {
    let (counters, chains) = (drops::counters(Owner::Policy), rules::chains(log));
    Skeleton::new(POLICY_TABLE, FORMAT, declarations(), counters, chains)
}

/// The declarations of all sets and maps.
fn declarations() -> Vec<Set> {
    schema::declarations::<Desired>()
        .chain([generation::entry()])
        .collect()
}

#[cfg(test)]
mod tests;
