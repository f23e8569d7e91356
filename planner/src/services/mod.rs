//! Where new flows to Services are sent: Services and their endpoints, planned into the
//! sets and maps that the rules look up.
//!
//! [`planner::ServicePlanner`] is the entry.

mod choice;
mod claims;
mod compiled;
mod counted;
pub mod desired;
pub mod evaluator;
pub mod explain;
mod frontends;
mod groups;
mod known_numbers;
mod known_slots;
mod limits;
pub mod options;
pub mod planner;
mod ports;
mod refusal;
mod registry;
mod reserved;
mod scope;
mod slice;
mod spec;
pub mod stale;
mod surroundings;
mod tables;
pub mod timeouts;

pub use claims::Contest;
pub use desired::{Delta, Desired};
pub use explain::{ExplainError, Explanation, OwnAddresses, Places};
pub use frontends::WithoutLocal;
pub use known_numbers::KnownNumbers;
pub use known_slots::KnownSlots;
pub use options::{NodePortAddresses, Options};
pub use planner::{Notice, ServicePlanner, Step};
pub use refusal::{Refusal, Refused};
pub use surroundings::{Overlap, PodNetworks};

#[cfg(test)]
mod tests;
