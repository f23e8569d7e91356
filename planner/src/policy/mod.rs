//! Which packets of this node's pods policies allow: NetworkPolicy and
//! ClusterNetworkPolicy, compiled into the sets and maps that the rules look up.
//!
//! [`planner::PolicyPlanner`] is the entry.

mod class;
mod compiled;
pub mod desired;
mod end_addresses;
pub mod evaluator;
pub mod explain;
mod flow;
mod identities;
mod index;
mod labels;
pub mod local;
mod nodes;
mod peer_sets;
pub mod planner;
pub mod pods;
mod ports;
mod profiles;
mod rules;
mod uid;
pub mod wants;
mod who;

pub use desired::{Delta, Desired};
pub use end_addresses::EndAddresses;
pub use evaluator::{Endpoint, Explanation};
pub use flow::ExplainError;
pub use index::PolicyKinds;
pub use local::{LocalPod, LocalPods, PolicyKey};
pub use planner::{PolicyPlanner, Step};
pub use pods::PodScope;
pub use wants::{Peers, Wants};
pub use who::Who;

#[cfg(test)]
mod tests;
