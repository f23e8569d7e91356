//! Watches objects of an API server or of a file.

pub mod api;
pub mod source;

#[cfg(test)]
#[path = "../../planner/src/fixture/node.rs"]
mod fixture;
