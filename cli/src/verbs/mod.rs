//! The verbs, each with its arguments.

pub mod addresses;
pub mod papers;
pub mod places;
pub mod served;
pub mod version;
pub mod where_to;
pub mod why;
