//! The two groups of a Service port: with endpoints of the cluster, and with those of this
//! node.

use crate::numbers::Number;

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
        if group.is_multiple_of(2) {
            Self::Cluster
        } else {
            Self::Local
        }
    }
}

/// The two groups of a Service port, by the number of either.
#[must_use]
pub fn both_scopes(group: Number) -> [Number; 2] {
    [group & !1, group | 1]
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
