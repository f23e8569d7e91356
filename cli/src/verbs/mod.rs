//! The verbs, each with its arguments.

pub mod addresses;
pub mod bundle;
pub mod doctor;
pub mod drops;
pub mod fast_path;
pub mod graph;
mod nodes;
pub mod papers;
pub mod peers;
pub mod places;
pub mod served;
pub mod status;
pub mod version;
pub mod where_to;
pub mod why;
