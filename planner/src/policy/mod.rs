//! Which packets of this node's pods policies allow: NetworkPolicy and
//! ClusterNetworkPolicy, compiled into the sets and maps that the rules look up.
//!
//! [`planner::PolicyPlanner`] is the entry.

pub(crate) mod addresses;
mod class;
mod compiled;
pub mod desired;
pub mod evaluator;
mod explain;
mod identities;
mod index;
mod labels;
pub mod local;
mod nodes;
pub(crate) mod numbers;
mod peer_sets;
pub mod planner;
pub mod pods;
pub(crate) mod ports;
mod profiles;
mod rules;
pub(crate) mod tables;
mod uid;
pub mod wants;
mod who;

pub use desired::{Delta, Desired};
pub use evaluator::{Endpoint, Explanation};
pub use explain::ExplainError;
pub use index::PolicyKinds;
pub use local::{LocalPod, LocalPods, PolicyKey};
pub use planner::{PolicyPlanner, Step};
pub use pods::PodScope;
pub use wants::{Peers, Wants};
pub use who::Who;

#[cfg(test)]
pub(crate) mod tests;
