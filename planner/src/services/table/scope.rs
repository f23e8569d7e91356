//! The two groups of a Service port: with endpoints of the cluster, and with those of this
//! node.

pub use super::super::model::scope::{PerScope, SCOPES, Scope};
use crate::numbers::Number;

/// The distance of the numbers of two groups, a power of two: below the number of a group
/// there is room for what it holds ([`Group`](super::desired::Group)), since the rules have
/// room for one number.
pub const GROUP_DISTANCE: Number = 0x100;

impl Scope {
    /// The scope of a group that a frontend leads to.
    #[must_use]
    pub fn of(group: Number) -> Self {
        match group & GROUP_DISTANCE {
            0 => Self::Cluster,
            _ => Self::Local,
        }
    }

    /// The group of this scope, of the Service port whose first group is `base`.
    #[must_use]
    pub fn group(self, base: Number) -> Number {
        match self {
            Self::Cluster => base,
            Self::Local => base + GROUP_DISTANCE,
        }
    }
}

/// The two groups of a Service port, by the number of either.
#[must_use]
pub fn both_scopes(group: Number) -> [Number; 2] {
    [group & !GROUP_DISTANCE, group | GROUP_DISTANCE]
}
