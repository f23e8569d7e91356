//! A NetworkPolicy, `networking.k8s.io/v1`, as its source describes it: not yet
//! validated. What cannot be understood stays text, or is a value that says so.

use super::selector::LabelSelector;

/// A NetworkPolicy, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkPolicy {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty if the source gives none.
    pub uid: String,
    /// `spec.podSelector`.
    pub pod_selector: LabelSelector,
    /// `spec.policyTypes` as it stands; empty if the source gives none (the API server
    /// fills it in, a file need not: `Ingress`, and `Egress` if there are egress
    /// rules).
    pub policy_types: Vec<String>,
    /// `spec.ingress`.
    pub ingress: Vec<Rule>,
    /// `spec.egress`.
    pub egress: Vec<Rule>,
}

/// A rule of either direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// `from` or `to`; empty means every peer.
    pub peers: Vec<Peer>,
    /// `ports`; empty means every protocol and port.
    pub ports: Vec<Port>,
}

/// One entry of `from` or `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Pods: of the policy's own namespace if `namespace` is absent.
    Pods {
        /// `namespaceSelector`.
        namespace: Option<LabelSelector>,
        /// `podSelector`; absent means all pods of those namespaces.
        pod: Option<LabelSelector>,
    },
    /// `ipBlock`.
    Block {
        /// `cidr` as text.
        cidr: String,
        /// `except` as text.
        except: Vec<String>,
    },
    /// None of these, or several that exclude each other: it matches nothing.
    Unknown(String),
}

/// One entry of `ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// `protocol` as text; `TCP` if the source gives none.
    pub protocol: String,
    /// `port` and `endPort`.
    pub port: PortMatch,
}

/// Which ports of a protocol are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortMatch {
    /// All of them.
    All,
    /// From the first to the last, both included.
    Range(u16, u16),
    /// The port that the destination pod calls so.
    Named(String),
    /// Something that cannot be understood, as text.
    Invalid(String),
}

object!(NetworkPolicy, "NetworkPolicies", namespace);
