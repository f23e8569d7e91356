//! What policies are made of.

use std::fmt;

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::{Event, Object as _};
use tweed_core::object::{namespace::Namespace, network_policy::NetworkPolicy, pod::Pod};
use tweed_core::problem::ProblemKind;
use tweed_planner::policy::{PodScope, PolicyPlanner, Wants};

use super::{Index, Input};

/// The planner of policies with its objects.
pub type PolicyIndex = Index<Collection>;

/// Objects that one source delivers for policies.
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
    pub fn wanted(wants: &Wants) -> impl Iterator<Item = Self> {
        let namespaces = wants.namespaces.then_some(Self::Namespaces);
        let pods = wants.pods.iter().cloned().map(Self::Pods);
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

impl super::Collection for Collection {
    type Planner = PolicyPlanner;

    const NEEDED: &'static [Self] = &Self::POLICIES;
    const FORBIDDEN: ProblemKind = ProblemKind::PoliciesForbidden;
    const UNREADABLE: ProblemKind = ProblemKind::PoliciesUnreadable;
}

impl Input<Collection> for NetworkPolicy {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_network_policies(event)
    }
}

impl Input<Collection> for ClusterNetworkPolicy {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_cluster_network_policies(event)
    }
}

impl Input<Collection> for Namespace {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_namespaces(event)
    }
}

impl Input<Collection> for Pod {
    fn apply(planner: &mut PolicyPlanner, collection: &Collection, event: Event<Self>) -> bool {
        match collection {
            Collection::Pods(scope) => planner.apply_pods(scope, event),
            _ => false,
        }
    }
}

impl PolicyIndex {
    /// The index of the node of this name, before any event.
    pub fn new(node_name: &str) -> Self {
        Self::of(PolicyPlanner::new(node_name))
    }

    /// The source of `collection` has been stopped: what only it has said is
    /// forgotten. Says whether anything changed by it.
    pub fn forget(&mut self, collection: &Collection) -> bool {
        let of_source = self.sources.remove(collection).is_some();
        let of_objects = match collection {
            Collection::Pods(scope) => self.planner.drop_scope(scope),
            Collection::Namespaces => self.planner.drop_namespaces(),
            Collection::NetworkPolicies | Collection::ClusterNetworkPolicies => false,
        };
        self.note(of_source || of_objects)
    }

    /// Whether there is any policy.
    pub fn has_policies(&self) -> bool {
        self.policies().iter().any(|(_, count)| *count > 0)
    }

    /// How many policies of each kind there are.
    pub fn policies(&self) -> [(&'static str, usize); 2] {
        let (network, cluster) = self.planner.policies();
        [
            (NetworkPolicy::KINDS, network),
            (ClusterNetworkPolicy::KINDS, cluster),
        ]
    }
}
