//! Services in the table, with real packets: a node with two pods, a pod of another node
//! over the overlay, and a host that stands for everything outside the cluster.

mod affinity;
mod changes;
mod cost;
mod delta;
mod draws;
mod held;
mod invalid;
mod lab;
mod links;
mod passing_through;
mod plan;
mod policy;
mod refusals;
mod restart;
mod sctp;
mod sources;
