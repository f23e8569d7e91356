//! The question why a flow is allowed or denied, and its answer.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Which flow is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Who begins it.
    pub from: End,
    /// Who answers.
    pub to: End,
    /// The number of the protocol (IANA).
    pub protocol: u8,
    /// The destination port; none of a protocol without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// One end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An address, of a pod or not.
    Address(IpAddr),
}

/// What the agent of one node knows of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The node whose agent answers.
    pub node: String,
    /// Whether policies are in force on it: without any in the cluster there are no
    /// rules.
    pub in_force: bool,
    /// The flow between each two addresses of the ends, one of each family.
    pub flows: Vec<Flow>,
    /// What else to know or to do: whole sentences.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// A flow between two addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Its source.
    pub from: IpAddr,
    /// Its destination.
    pub to: IpAddr,
    /// What the source's policies say.
    pub egress: Side,
    /// What the destination's policies say.
    pub ingress: Side,
}

/// One direction of a flow: what the policies of one end say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// What they come to.
    pub verdict: Verdict,
    /// The policies that select the pod in this direction, in their order.
    #[serde(default)]
    pub policies: Vec<String>,
    /// The policy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Its rule, or why it is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the plan for the kernel has of the pod's address; none if it is no pod of the
    /// node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Held>,
}

/// What one end's policies come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A rule allows the flow.
    Allowed,
    /// A rule denies it, or no rule allows it.
    Denied,
    /// No policy selects the pod in this direction.
    Open,
    /// The pod has not been judged yet: nothing passes.
    Isolated,
    /// Policies are not asked: a node to its own pod. Nor are NetworkPolicies of a pod to
    /// itself.
    Exempt,
    /// The end is no pod of this node: its node decides, or nobody.
    NotHere,
}

/// What the sets of the kernel's table are to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Whether the pod's address is in `policy_judged4` or `policy_judged6`.
    pub judged: bool,
    /// Whether the pod's address is subject to policies of this direction.
    pub policed: bool,
    /// The number of the other end's identity; 0 is that of unknown addresses.
    pub identity: u32,
    /// The number of the profile for the pod's address and that identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<u32>,
}

impl Verdict {
    /// Whether it stops the flow.
    #[must_use]
    pub fn stops(self) -> bool {
        matches!(self, Self::Denied | Self::Isolated)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// The name of a protocol, or its number.
#[must_use]
pub fn protocol_name(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("protocol {other}"),
    }
}
