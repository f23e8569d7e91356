//! The two groups of a Service port: with endpoints of the cluster, and with those of this
//! node.

use crate::numbers::Number;

/// The distance of the numbers of two groups, a power of two: below the number of a group
/// there is room for what it holds ([`Group`](super::super::table::desired::Group)), since the rules have room for one number.
pub const GROUP_DISTANCE: Number = 0x100;

/// Which endpoints of a Service port a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Those of the cluster, or of this node's zone.
    Cluster,
    /// Those of this node.
    Local,
}

/// Both scopes.
pub const SCOPES: [Scope; 2] = [Scope::Cluster, Scope::Local];

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

/// One value for each scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerScope<T> {
    /// [`Scope::Cluster`].
    pub cluster: T,
    /// [`Scope::Local`].
    pub local: T,
}

impl<T> PerScope<T> {
    /// The value of a scope.
    pub fn get(&self, scope: Scope) -> &T {
        match scope {
            Scope::Cluster => &self.cluster,
            Scope::Local => &self.local,
        }
    }

    /// The same to be changed.
    pub fn get_mut(&mut self, scope: Scope) -> &mut T {
        match scope {
            Scope::Cluster => &mut self.cluster,
            Scope::Local => &mut self.local,
        }
    }
}
