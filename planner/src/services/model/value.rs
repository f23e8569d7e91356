//! Where Services are reached, and what they lead to.

use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;

/// A port of a Service at one of its addresses: a cluster IP, an external IP or the
/// address of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The address.
    pub address: IpAddr,
    /// The number of the protocol: 6, 17 or 132.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// A node port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePort {
    /// The family of the node's address.
    pub family: Family,
    /// The number of the protocol: 6, 17 or 132.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// What new flows are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// Which flows to a frontend are masqueraded. Where nothing is said (cluster IPs, the
/// most) all are but those of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Masquerade {
    /// All: an endpoint of another node must not answer the client directly.
    All,
    /// Only those of this node itself: clients keep their addresses
    /// (`externalTrafficPolicy: Local`).
    OwnNode,
}

/// The namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// What is answered at a `healthCheckNodePort`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HealthCheck {
    /// The Service.
    pub service: ServiceName,
    /// How many ready endpoints it has on this node, counted by address, in the first
    /// of its families.
    pub local_endpoints: usize,
}

/// A frontend of UDP: its flows are removed from conntrack when their endpoint is
/// ([`stale`](super::super::stale)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tracked {
    /// At an address.
    Address(Frontend),
    /// At each address that has node ports.
    NodePort(NodePort),
}

impl Tracked {
    /// The number of its protocol.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        match self {
            Self::Address(at) => at.protocol,
            Self::NodePort(at) => at.protocol,
        }
    }

    /// The family of its address or addresses.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Address(at) => Family::of(at.address),
            Self::NodePort(at) => at.family,
        }
    }
}
