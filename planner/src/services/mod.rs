//! Where new flows to Services are sent: Services and their endpoints, planned into the
//! sets and maps that the rules look up.
//!
//! [`planner::ServicePlanner`] is the entry.

pub mod evaluator;
pub mod explain;
mod model;
pub mod planner;
pub mod stale;
mod table;

pub use explain::{ExplainError, Explanation, OwnAddresses, Places};
pub use model::{
    frontends::WithoutLocal,
    options::{NodePortAddresses, Options},
    refusal::{Refusal, Refused},
    surroundings::{Overlap, PodNetworks},
};
pub use planner::{Notice, ServicePlanner, Step};
pub use table::desired::{self, Delta, Desired};
pub use table::{KnownNumbers, KnownSlots, claims::Contest, timeouts};

#[cfg(test)]
mod tests;
