//! What the agent watches for policies, and what it knows from that.
//!
//! How data goes through: [`watches`] runs a source for each [`Collection`] that the
//! planner needs; each event goes into the [`index`], in the state that both threads
//! share, and wakes the kernel thread. That plans, writes
//! ([`crate::reconcile::policy`]) and says anew what is needed.
//!
//! What always holds: policies are always watched; Namespaces and Pods only while a
//! policy needs them.

pub mod index;
pub mod verdict;
pub mod watches;

use std::fmt;

use tweed_core::object::Object as _;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::{namespace::Namespace, network_policy::NetworkPolicy, pod::Pod};
use tweed_planner::policy::{Peers, PodScope, Wants};

/// Objects that one source delivers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    /// All NetworkPolicies.
    NetworkPolicies,
    /// All ClusterNetworkPolicies.
    ClusterNetworkPolicies,
    /// All Namespaces.
    Namespaces,
    /// The Pods of one scope.
    Pods(PodScope),
}

impl Collection {
    /// Those that say whether there is any policy.
    pub const POLICIES: [Self; 2] = [Self::NetworkPolicies, Self::ClusterNetworkPolicies];

    /// What is to be watched for `wants`.
    fn wanted(wants: &Wants) -> impl Iterator<Item = Self> {
        let namespaces = wants.namespaces.then_some(Self::Namespaces);
        let own = wants.own_pods.then_some(PodScope::Own);
        let peers: Vec<PodScope> = match &wants.peers {
            Peers::None => Vec::new(),
            Peers::Namespaces(names) => names.iter().cloned().map(PodScope::Namespace).collect(),
            Peers::All => vec![PodScope::All],
        };
        let kept = wants.kept.iter().cloned();
        let pods = own.into_iter().chain(peers).chain(kept).map(Self::Pods);
        Self::POLICIES.into_iter().chain(namespaces).chain(pods)
    }

    /// The kind of the objects, in the plural.
    fn kinds(&self) -> &'static str {
        match self {
            Self::NetworkPolicies => NetworkPolicy::KINDS,
            Self::ClusterNetworkPolicies => ClusterNetworkPolicy::KINDS,
            Self::Namespaces => Namespace::KINDS,
            Self::Pods(_) => Pod::KINDS,
        }
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(PodScope::Own) => f.write_str("Pods of this node"),
            Self::Pods(PodScope::Namespace(name)) => write!(f, "Pods of the namespace {name}"),
            other => f.write_str(other.kinds()),
        }
    }
}
