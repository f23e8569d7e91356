//! The Nodes as they are known: a synchronous index of what sources said.

pub mod node;
