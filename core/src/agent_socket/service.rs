//! The question where new connections to a Service go, and its answer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::why::protocol_name;

/// Which destination is meant, and who the client is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Where {
    /// The destination.
    pub to: Destination,
    /// The client; none for each kind of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Client>,
    /// Whether as many endpoints are listed as an answer has room for.
    #[serde(default)]
    pub all: bool,
}

/// A destination of connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// An address with a port.
    Address {
        /// The address.
        address: IpAddr,
        /// The number of the protocol (IANA).
        protocol: u8,
        /// The port.
        port: u16,
    },
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// One of its ports; none for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// The number of the protocol of the ports; none for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u8>,
    },
    /// A node port, at the addresses of the node that have node ports.
    NodePort {
        /// The number of the protocol (IANA).
        protocol: u8,
        /// The port.
        port: u16,
    },
}

/// Who begins a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A pod of the cluster, whichever.
    Pod,
    /// This node itself.
    Node,
    /// Somebody outside the cluster, or another node.
    Outside,
    /// Whoever has this address.
    Address(IpAddr),
}

/// What the agent of one node knows of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Located {
    /// The node whose agent answers.
    pub node: String,
    /// The Service that has the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// What was asked for of its ports, once for each family.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// How many ports are left out.
    #[serde(default)]
    pub more_ports: usize,
    /// What becomes of connections to a destination that no Service has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none: Option<NoService>,
    /// What the kernel has of it, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// What else to know or to do: whole sentences.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// What of a Service decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether its cluster IPs lead to this node's endpoints only.
    pub internal_local: bool,
    /// Whether its other frontends do so for connections from outside.
    pub external_local: bool,
    /// The timeout of session affinity, if it has affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_seconds: Option<u32>,
    /// The port of its health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<u16>,
}

/// A port of a Service in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name; may be empty.
    pub name: String,
    /// The number of its protocol.
    pub protocol: u8,
    /// Its port at addresses.
    pub port: u16,
    /// Whether the family is IPv6.
    pub ipv6: bool,
    /// Where it is reached.
    pub frontends: Vec<Frontend>,
    /// How many frontends are left out.
    #[serde(default)]
    pub more_frontends: usize,
    /// The endpoints, the used ones first.
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints are left out.
    #[serde(default)]
    pub more_endpoints: usize,
    /// How many endpoints there are, and how many of them are used.
    pub counts: Counts,
}

/// How many endpoints a port of a Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All of its family.
    pub known: usize,
    /// Those of the cluster that are used; none where no frontend leads to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<usize>,
    /// Those of this node that are used; none where no frontend leads to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<usize>,
    /// Those of the other family, which this one never leads to.
    pub other_family: usize,
}

/// Where a port of a Service is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontend {
    /// How the Service comes by it.
    pub kind: FrontendKind,
    /// Its address; none of a node port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The Service that has it, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<String>,
    /// Who may use it, if not everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ranges: Option<SourceRanges>,
    /// What becomes of connections to it, by who begins them.
    pub paths: Vec<Path>,
}

/// How a Service comes by a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrontendKind {
    /// A cluster IP.
    ClusterIp,
    /// The address of a load balancer.
    LoadBalancer,
    /// An external IP.
    ExternalIp,
    /// A node port.
    NodePort,
}

/// `loadBalancerSourceRanges`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceRanges {
    /// The sources that may use the frontend; FIRST-LAST.
    pub ranges: Vec<String>,
    /// How many ranges are left out.
    #[serde(default)]
    pub more: usize,
    /// Whether this node may.
    pub node: bool,
}

/// What becomes of connections to a frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Path {
    /// Who begins them: never [`Client::Address`].
    pub from: Client,
    /// What becomes of them.
    pub fate: Fate,
    /// The number of the group of endpoints that they are sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// How many endpoints the group has by the plan.
    #[serde(default)]
    pub endpoints: usize,
    /// Whether only endpoints of this node count.
    #[serde(default)]
    pub local_only: bool,
    /// Whether they are masqueraded.
    #[serde(default)]
    pub masqueraded: bool,
    /// Whether they are masqueraded if the client itself is the chosen endpoint, which
    /// it can be.
    #[serde(default)]
    pub hairpin: bool,
    /// Whether they are masqueraded if the chosen endpoint is one of another node, which it
    /// can be: the client is a pod of another node too.
    #[serde(default)]
    pub to_other_nodes: bool,
}

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// They are sent to an endpoint.
    Sent,
    /// They are rejected: there is no endpoint anywhere.
    Rejected,
    /// They are dropped: the traffic policy is `Local`, and all endpoints are on other
    /// nodes.
    NoLocalEndpoint,
    /// They are dropped: the source may not use the frontend.
    SourceNotAllowed,
}

/// What becomes of connections to a destination that no Service has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoService {
    /// What becomes of them.
    pub fate: NoServiceFate,
    /// Why: a whole sentence.
    pub reason: String,
}

/// What becomes of connections to a destination that no Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoServiceFate {
    /// They are rejected.
    Rejected,
    /// They are dropped.
    Dropped,
    /// They are nothing of Services, and left as they are.
    Untouched,
}

/// An endpoint of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Where it listens.
    pub at: SocketAddr,
    /// Whether it is on this node.
    pub here: bool,
    /// The node that its address belongs to, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `conditions.ready`.
    pub ready: bool,
    /// `conditions.serving`.
    pub serving: bool,
    /// `conditions.terminating`.
    pub terminating: bool,
    /// The zones in `hints.forZones`.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Whether it is used where endpoints of the cluster are; none where no frontend
    /// leads to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Use>,
    /// Whether it is used where only this node's endpoints are; none where no frontend
    /// leads to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Use>,
}

/// Whether new connections are sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// They are.
    Used,
    /// It is neither ready, nor serving and about to end.
    NotReady,
    /// It is about to end, and others are ready.
    Ending,
    /// It is on another node.
    NotLocal,
    /// Hints give it to other nodes.
    OtherNode,
    /// Hints give it to other zones.
    OtherZone,
    /// There are more endpoints than the rules can use.
    BeyondMaximum,
}

/// What the kernel has of a destination, next to the plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    /// How many elements of its sets and maps were read.
    pub read: usize,
    /// How many more there are.
    #[serde(default)]
    pub unread: usize,
    /// What is not as planned.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// How many differences are left out.
    #[serde(default)]
    pub more_differences: usize,
}

/// An element of the kernel that is not as planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The set or map.
    pub set: String,
    /// The key, as `nft` writes it.
    pub key: String,
    /// What was planned; none if there should be no such element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<String>,
    /// What the kernel has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address {
                address,
                protocol,
                port,
            } => {
                let at = SocketAddr::new(*address, *port);
                write!(f, "{at}/{}", protocol_name(*protocol))
            }
            Self::Service {
                namespace,
                name,
                port,
                protocol,
            } => {
                write!(f, "Service {namespace}/{name}")?;
                if let Some(port) = port {
                    write!(f, " port {port}")?;
                }
                match protocol {
                    Some(protocol) => write!(f, " {}", protocol_name(*protocol)),
                    None => Ok(()),
                }
            }
            Self::NodePort { protocol, port } => {
                write!(f, "node port {port}/{}", protocol_name(*protocol))
            }
        }
    }
}
