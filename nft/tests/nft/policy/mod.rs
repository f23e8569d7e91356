//! Policy in the table, with real packets: a node with two pods, and a host that stands
//! for everything beyond the node.

mod cost;
mod delta;
mod lab;
mod packets;
pub mod plan;
mod repair;
mod revocation;
mod verdicts;
