//! The table of policies, `inet tweed-policy`: which sets, maps and chains it has ([`sets`],
//! [`rules`]), and how it is kept ([`PolicyTable`]). It is there only while a policy exists.

mod generation;
mod marks;
mod rules;
mod sets;
mod steps;
mod table;

use tweed_planner::policy::Desired;

use crate::schema;
use crate::table::{Set, Skeleton};
use crate::tables::POLICY_TABLE;
pub use table::PolicyTable;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 1;

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

/// The table without elements. With `log` packets are logged before they are dropped.
fn skeleton(log: bool) -> Skeleton {
    let counters = rules::COUNTERS.to_vec();
    Skeleton::new(
        POLICY_TABLE,
        FORMAT,
        declarations(),
        counters,
        rules::chains(log),
    )
}

/// The declarations of all sets and maps.
fn declarations() -> Vec<Set> {
    schema::declarations::<Desired>()
        .chain([generation::entry()])
        .collect()
}

#[cfg(test)]
mod tests;
