//! How packets reach the pods of other nodes: routes, and with VXLAN a device,
//! neighbours and FDB entries; and the sets of nftables that follow from the
//! Nodes.
//!
//! ```text
//! Event<Node> ──▶ cluster::Cluster ─ Snapshot ─┐
//! Config ──────────────────────────────────────┼─▶ plan ──▶ Plan { network, problems }
//! kernel ───────▶ host::HostFacts ─────────────┘    │
//!                                                   ├─ claims   who gets what (syntax, vtep, refusal, warning)
//!                                                   ├─ local    the own part
//!                                                   └─ peers    what each other Node adds
//! ```
//!
//! [`planner::OverlayPlanner`] keeps the last plan and its version. When single
//! Nodes have changed it has [`delta`] find out what they change, and the rest
//! is not planned again.
//!
//! A pure function makes the plan ([`plan()`]): no module of this folder knows a
//! client, a socket or a clock.

mod basis;
pub mod claims;
pub mod cluster;
pub mod delta;
pub mod desired;
pub mod host;
mod local;
mod peers;
mod plan;
pub mod planner;
pub mod refusal;
pub mod syntax;
pub mod vtep;
mod warning;

pub use desired::{Delta, Network, Underlay};
pub use plan::{Plan, plan};
pub use planner::{OverlayPlanner, PathTargets};

#[cfg(test)]
mod tests;
