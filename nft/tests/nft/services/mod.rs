//! Services in the table, with real packets: a node with two pods, a pod of another node
//! over the overlay, and a host that stands for everything outside the cluster.

mod affinity;
pub mod changes;
mod cost;
mod draws;
mod held;
mod invalid;
pub mod lab;
mod links;
mod local_dns;
mod passing_through;
pub mod plan;
mod policy;
mod refusals;
mod replaced_rules;
mod restart;
mod sctp;
mod sources;
