//! The verbs, each with its arguments.

pub mod version;
