//! The pods of this node, and the policies that apply to each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use tweed_core::attachment::PodName;

use super::class::Class;
use super::labels::Kind;
use super::verdicts::PerDirection;

/// The local addresses, from the store of addresses of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalPods {
    /// The pod CIDRs of this node.
    pub cidrs: BTreeSet<IpNetwork>,
    /// The addresses of attachments, each with the pod that the runtime named. Without
    /// a name it is a container that policies are not about.
    pub pods: BTreeMap<IpAddr, Option<LocalPod>>,
    /// This node's own addresses within its pod CIDRs.
    pub own: BTreeSet<IpAddr>,
}

/// The pod of a local address, as the runtime names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPod {
    /// Its name.
    pub name: PodName,
    /// The UID by which the kubelet knows it, if the runtime gives it: a later pod of
    /// the same name has another one.
    pub uid: Option<String>,
}

impl From<PodName> for LocalPod {
    fn from(name: PodName) -> Self {
        Self { name, uid: None }
    }
}

/// A policy's kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKey {
    /// A NetworkPolicy, by namespace and name.
    Network(String, String),
    /// A ClusterNetworkPolicy.
    Cluster(String),
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(namespace, name) => write!(f, "NetworkPolicy {namespace}/{name}"),
            Self::Cluster(name) => write!(f, "ClusterNetworkPolicy {name}"),
        }
    }
}

/// What is known of a local address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// No policy is about it.
    Open,
    /// Its pod is not known yet: it is isolated.
    NotYet,
    /// Its pod.
    Pod {
        /// Namespace, labels and ports.
        kind: Arc<Kind>,
        /// Whether it has ended: others do not see it as a pod any more.
        finished: bool,
    },
}

/// A local address.
#[derive(Debug)]
pub struct Local {
    /// What is known of it.
    pub known: Known,
    /// The policies that select its pod.
    pub applied: BTreeSet<PolicyKey>,
    /// Its rules in each direction in which policies apply.
    pub classes: PerDirection<Option<Arc<Class>>>,
    /// Whether it stays isolated because a policy that selects its pod waits for a list, or one
    /// that may do so for its turn.
    pub waits: bool,
}

impl Local {
    /// An address before policies were looked at.
    pub fn new(known: Known) -> Self {
        Self {
            known,
            applied: BTreeSet::new(),
            classes: PerDirection::default(),
            waits: false,
        }
    }

    /// The pod as others see it.
    pub fn peer(&self) -> Option<&Arc<Kind>> {
        match &self.known {
            Known::Pod {
                kind,
                finished: false,
            } => Some(kind),
            _ => None,
        }
    }

    /// The pod as policies select it.
    pub fn subject(&self) -> Option<&Arc<Kind>> {
        match &self.known {
            Known::Pod { kind, .. } => Some(kind),
            Known::Open | Known::NotYet => None,
        }
    }

    /// Whether the rules of a direction are not certain yet.
    pub fn is_held(&self) -> bool {
        let both = [&self.classes.ingress, &self.classes.egress];
        { both.into_iter().flatten() }.any(|class| class.before().is_some())
    }

    /// Whether packets may pass at all.
    pub fn is_enforced(&self) -> bool {
        self.known != Known::NotYet && !self.waits
    }
}
