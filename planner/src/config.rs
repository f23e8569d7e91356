//! What the plan of the overlay is made from besides Nodes and this machine.
//! Defaults are filled in: a field is optional only if it has none.

use ipnetwork::IpNetwork;
use tweed_core::family::Family;

/// The part of the agent's configuration that decides on the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which Node this is.
    pub node_name: String,
    /// How packets reach other nodes.
    pub backend: Backend,
    /// `--cluster-cidr`: destinations that are not masqueraded. For a family
    /// without one it is the union of the Nodes' CIDRs.
    pub cluster_cidrs: Vec<IpNetwork>,
    /// VXLAN network identifier, 1 to 16777215.
    pub vni: u32,
    /// UDP port of VXLAN, the same on all nodes.
    pub vxlan_port: u16,
    /// Picks the one of each Node's addresses that is in it; none picks the
    /// first InternalIP.
    pub underlay: Option<IpNetwork>,
    /// Family of the underlay; none means that of the own Node's first
    /// InternalIP.
    pub underlay_family: Option<Family>,
    /// MTU of pods.
    pub mtu: Mtu,
    /// Source ports of masqueraded packets, or no masquerading.
    pub masquerade: Masquerade,
    /// Whether packets of IPv6 pods to outside of the cluster are masqueraded.
    pub masquerade_ipv6: MasqueradeIpv6,
    /// Whether pod → other node is masqueraded.
    pub masquerade_nodes: MasqueradeNodes,
}

/// How packets reach other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// VXLAN to every node.
    Vxlan,
    /// Plain routes to every node.
    Direct,
    /// Plain routes to nodes on the same link, VXLAN to the others.
    CrossSubnet,
}

/// How the MTU of pods is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mtu {
    /// The MTU of the way to the other nodes, less what the backend adds to a
    /// packet.
    Auto,
    /// This value, in bytes.
    Fixed(u32),
}

/// How source ports of masqueraded packets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// Chosen at random for each flow.
    RandomFully,
    /// Randomised by hash.
    Random,
    /// Nothing is masqueraded.
    Off,
}

/// Whether packets of IPv6 pods to outside of the cluster are masqueraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasqueradeIpv6 {
    /// Unless the pod CIDR is global unicast (2000::/3): such addresses are there
    /// to be reached, and whoever routes them to the nodes wants them seen.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether pod → other node is masqueraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasqueradeNodes {
    /// On with the backends vxlan and cross-subnet, off with direct.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}
