//! Where new flows to Services are sent: Services and their endpoints, planned into the
//! sets and maps that the rules look up.

pub mod desired;

pub use desired::{Delta, Desired};
