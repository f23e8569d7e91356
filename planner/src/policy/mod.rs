//! Which packets of this node's pods policies allow: NetworkPolicy and
//! ClusterNetworkPolicy, compiled into the sets and maps that the rules look up.
//!
//! [`planner::PolicyPlanner`] is the entry: it takes the events of watches in, and each plan
//! goes through two halves.
//!
//! ```text
//! events ─▶ model/ ── VerdictsDelta ──▶ table/ ─▶ Desired, Delta ─▶ nftables
//!             │
//!             └─ a writer of another kind would follow the same changes
//! ```
//!
//! - `model/` says what policies mean, whoever writes it down: which identity an address
//!   has, and what a local pod is allowed with it. It knows no set of nftables.
//! - `table/` is the writer for nftables: how the rules look protocols and ports up.
//! - [`evaluate`] says what the specification says of one packet, in plain code and from the
//!   objects alone: people are answered with it ([`explain`]), and the plan is tested against
//!   it.

pub mod evaluate;
pub mod explain;
mod flow;
mod model;
pub mod planner;
mod table;
mod who;

pub use flow::ExplainError;
pub use model::end_addresses::EndAddresses;
pub use model::index::PolicyKinds;
pub use model::local::{LocalPod, LocalPods, PolicyKey};
pub use model::pods::PodScope;
pub use model::verdicts;
pub use model::wants::Wants;
pub use planner::{PolicyPlanner, Step};
pub use table::desired::{self, Delta, Desired};
pub use who::Who;

#[cfg(test)]
mod tests;
