//! Policy in the table, with real packets: a node with two pods, and a host that stands
//! for everything beyond the node.

mod cost;
mod delta;
pub mod lab;
mod packets;
pub mod plan;
pub mod repair;
pub mod revocation;
mod verdicts;
