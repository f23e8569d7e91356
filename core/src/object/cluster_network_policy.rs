//! A ClusterNetworkPolicy, `policy.networking.k8s.io/v1alpha2`, as its source
//! describes it: not yet validated. Fields of a newer version that this build does not
//! know are values that say so, because they decide what a rule means.

use super::network_policy::PortMatch;
use super::selector::LabelSelector;

/// A ClusterNetworkPolicy, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterNetworkPolicy {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty if the source gives none.
    pub uid: String,
    /// `spec.tier` as text: `Admin` or `Baseline`.
    pub tier: String,
    /// `spec.priority`, 0 to 1000; lower comes first.
    pub priority: i64,
    /// `spec.subject`.
    pub subject: Subject,
    /// `spec.ingress`.
    pub ingress: Vec<Rule>,
    /// `spec.egress`.
    pub egress: Vec<Rule>,
}

/// Which pods a policy applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// All pods of these namespaces.
    Namespaces(LabelSelector),
    /// These pods of these namespaces.
    Pods {
        /// `namespaceSelector`.
        namespace: LabelSelector,
        /// `podSelector`.
        pod: LabelSelector,
    },
    /// A subject that this build does not know, as text.
    Unknown(String),
}

impl Default for Subject {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

/// A rule of either direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// `name`, for people.
    pub name: String,
    /// `action` as text: `Accept`, `Deny`, `Pass`.
    pub action: String,
    /// `from` or `to`.
    pub peers: Vec<Peer>,
    /// `protocols`; empty means every protocol and port.
    pub protocols: Vec<Protocol>,
}

/// One entry of `from` or `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// All pods of these namespaces.
    Namespaces(LabelSelector),
    /// These pods of these namespaces.
    Pods {
        /// `namespaceSelector`.
        namespace: LabelSelector,
        /// `podSelector`.
        pod: LabelSelector,
    },
    /// Egress only: the addresses of these Nodes.
    Nodes(LabelSelector),
    /// Egress only: these CIDRs, as text.
    Networks(Vec<String>),
    /// Egress only: these names, as text.
    DomainNames(Vec<String>),
    /// A peer that this build does not know, as text: in `Accept` it matches nothing,
    /// in `Deny` and `Pass` everything.
    Unknown(String),
}

/// One entry of `protocols`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// A protocol with its destination ports: `TCP`, `UDP` or `SCTP`.
    Ports {
        /// The protocol, in capitals as in a NetworkPolicy.
        protocol: String,
        /// Never [`PortMatch::Named`].
        port: PortMatch,
    },
    /// `destinationNamedPort`: of whatever protocol the destination pod gives it.
    NamedPort(String),
    /// A protocol that this build does not know, as text.
    Unknown(String),
}

object!(ClusterNetworkPolicy, "ClusterNetworkPolicies");
