//! The traffic policies: to endpoints of the cluster, or to those of this node.

/// Which endpoints of a Service port new flows can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Those of the cluster, or of this node's zone.
    Cluster,
    /// Those of this node.
    Local,
}

/// Both scopes.
pub const SCOPES: [Scope; 2] = [Scope::Cluster, Scope::Local];

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
