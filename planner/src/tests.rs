//! What the tests of several planners have in common.

pub mod dice;
pub mod fixture;
