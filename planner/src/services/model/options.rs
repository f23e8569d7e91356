//! What the plan of Services is made from besides the objects. Defaults are filled in:
//! a field is optional only if it has none.

use ipnetwork::IpNetwork;

/// The part of the agent's configuration that decides on Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which Node this is.
    pub node_name: String,
    /// `--nodeport-addresses`: where node ports are.
    pub node_port_addresses: NodePortAddresses,
    /// Whether `spec.externalIPs` counts: whoever may write a Service can otherwise take
    /// the traffic to any address (CVE-2020-8554).
    pub external_ips: bool,
    /// `--load-balancer-cidrs`: which addresses of load balancers count.
    pub load_balancer_cidrs: Vec<IpNetwork>,
}

/// At which of this node's addresses node ports are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePortAddresses {
    /// At the first address of each family in the Node object: its first InternalIP, or
    /// its first ExternalIP if it has none.
    pub primary: bool,
    /// At those in one of these networks.
    pub networks: Vec<IpNetwork>,
}
