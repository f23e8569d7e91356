//! Addresses and ports of Services that are not served at them: those that are nobody's to
//! serve, and those by which this agent reaches the API server. Pure.
//!
//! Whoever may write a Service, or its status, would otherwise take this machine's own ports,
//! or keep the agents from hearing of anything that would end it. A cluster IP is given out by
//! the API server and is served always.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::claims::Class;
use super::value::Frontend;
use crate::protocols::TCP;

/// Why a Service is not served at an address, or at one port of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The address is in `0.0.0.0/8`, or `::`.
    Unspecified,
    /// It is one of this machine to itself.
    Loopback,
    /// It is link-local.
    LinkLocal,
    /// It is one of a group of machines.
    Multicast,
    /// It is all machines of a link.
    Broadcast,
    /// [`Options::load_balancer_cidrs`](super::Options) leave it out.
    OutsideCidrs,
    /// The agent reaches the API server, or the proxy before it, at this address and port.
    ApiServer,
}

impl Refusal {
    /// Why no Service has this address besides cluster IPs.
    pub fn of(address: IpAddr) -> Option<Self> {
        let (link_local, unspecified, broadcast) = match address {
            IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[0] == 0, ip.is_broadcast()),
            IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.is_unspecified(), false),
        };
        let reasons = [
            (unspecified, Self::Unspecified),
            (address.is_loopback(), Self::Loopback),
            (link_local, Self::LinkLocal),
            (address.is_multicast(), Self::Multicast),
            (broadcast, Self::Broadcast),
        ];
        let found = reasons.into_iter().find(|(is, _)| *is);
        found.map(|(_, reason)| reason)
    }

    /// The same for an address of a load balancer, of which only those in `cidrs` count.
    pub fn of_load_balancer(address: IpAddr, cidrs: &[IpNetwork]) -> Option<Self> {
        let outside = || !cidrs.iter().any(|cidr| cidr.contains(address));
        Self::of(address).or_else(|| outside().then_some(Self::OutsideCidrs))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "is no machine's address",
            Self::Loopback => "is a loopback address",
            Self::LinkLocal => "is a link-local address",
            Self::Multicast => "is a multicast address",
            Self::Broadcast => "is the broadcast address",
            Self::OutsideCidrs => "is not in --load-balancer-cidrs",
            Self::ApiServer => "leads to the API server, or to the proxy before it",
        })
    }
}

/// Where a Service is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// How the Service has it.
    pub class: Class,
    /// The address; none for a node port.
    pub address: Option<IpAddr>,
    /// The only port of TCP that it is about; none for all ports of the address.
    pub port: Option<u16>,
    /// Why.
    pub why: Refusal,
}

impl Refused {
    /// An address with all its ports.
    pub fn whole(class: Class, address: IpAddr, why: Refusal) -> Self {
        Self {
            class,
            address: Some(address),
            port: None,
            why,
        }
    }

    /// Whether it is about flows of a protocol to this port at this address.
    pub fn is_about(&self, key: &Frontend, has_node_ports: bool) -> bool {
        let same = match self.address {
            Some(address) => address == key.address,
            None => has_node_ports,
        };
        let same_port = |port| port == key.port && key.protocol == TCP;
        same && self.port.is_none_or(same_port)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.class {
            Class::ClusterIp => "the cluster IP",
            Class::LoadBalancer => "the load balancer's address",
            Class::ExternalIp => "the external IP",
            Class::NodePort => "the node port",
        };
        match (self.address, self.port) {
            (Some(address), Some(port)) => write!(f, "{what} {address}, port {port}/TCP")?,
            (Some(address), None) => write!(f, "{what} {address}")?,
            (None, port) => write!(f, "{what} {}/TCP", port.unwrap_or_default())?,
        }
        write!(f, " {}", self.why)
    }
}
