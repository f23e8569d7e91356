//! The desired elements, and what has changed in them since the last plan.

/// Those of Services.
pub type Tables = crate::tables::Tables<super::desired::Desired>;

pub(super) use crate::tables::{put, replace};
