//! What the kernel should hold for the cluster: the output of the plan, the
//! input of the reconcilers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::mac::Mac;
pub use tweed_core::ownership::{LINK_GROUP as POD_LINK_GROUP, ROUTE_PROTOCOL};

use crate::config::Masquerade;

/// Metric of `unreachable` routes: the last that the kernel looks at.
pub const UNREACHABLE_METRIC: u32 = u32::MAX;

/// A node's network: the kernel's part, and what others need to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// What the kernel should hold.
    pub desired: Desired,
    /// Own pod CIDRs, at most one per family, in the Node's order: the ranges
    /// of the conflist.
    pub pod_cidrs: Vec<IpNetwork>,
    /// MTU of pods, in bytes.
    pub pod_mtu: u32,
    /// The underlay's end on this machine.
    pub underlay: Underlay,
    /// For every family that pods have: the source of the node's packets to
    /// its own pods, `hostSource` of the conflist. That of the underlay's
    /// family is the underlay address; of the other family it is the Node's
    /// address, or, where it has none, the VXLAN device's; with neither the
    /// family is missing here.
    pub host_sources: BTreeMap<Family, IpAddr>,
}

/// Where this node meets the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Own address.
    pub address: IpAddr,
    /// Index of the interface that has it.
    pub interface: u32,
    /// Name of the interface.
    pub name: String,
    /// MTU of the interface, in bytes.
    pub mtu: u32,
}

impl Network {
    /// Whether `ip` belongs to this node's pods. A local pod with an address
    /// for which this is false was made before the own CIDR changed: it is to
    /// be named and restarted, and its address is never handed out again.
    #[must_use]
    pub fn holds(&self, ip: IpAddr) -> bool {
        self.pod_cidrs.iter().any(|cidr| cidr.contains(ip))
    }
}

/// Everything that the kernel is to hold as far as it follows from Nodes and
/// config. What follows from local pods stands in `crate::pods`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// The VXLAN device; none with the direct backend. While this node has no
    /// usable address or pod CIDR there is no `Desired` at all: see
    /// [`super::Plan::network`].
    pub vxlan: Option<VxlanDevice>,
    /// Addresses of the VXLAN device (`10.244.1.0/32`).
    pub vxlan_addresses: BTreeSet<IpNetwork>,
    /// Permanent neighbours on the VXLAN device.
    pub neighbours: BTreeMap<IpAddr, Mac>,
    /// FDB entries on the VXLAN device: VTEP MAC → outer address.
    pub fdb: BTreeMap<Mac, IpAddr>,
    /// Routes by destination. Two with the same destination differ in metric.
    pub routes: BTreeMap<RouteKey, Route>,
    /// The table `inet tweed`.
    pub ruleset: Ruleset,
    /// Families that pods use on this node: decides which forwarding sysctls
    /// are kept.
    pub forwarding: BTreeSet<Family>,
}

/// The VXLAN device. What differs in `vni`, `port` or `local` means another
/// device; `mac` and `mtu` are changed in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VxlanDevice {
    /// `tweed.<vni>`.
    pub name: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Own VTEP address: source of outer packets.
    pub local: IpAddr,
    /// MAC by the frozen function.
    pub mac: Mac,
    /// Bytes.
    pub mtu: u32,
}

/// What tells routes of the main table apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Destination.
    pub destination: IpNetwork,
    /// Metric; 0 is the kernel's default for the family.
    pub metric: u32,
}

impl RouteKey {
    /// The key of a route that leads to another node.
    #[must_use]
    pub fn to(destination: IpNetwork) -> Self {
        Self {
            destination,
            metric: 0,
        }
    }

    /// The key of the route that answers for addresses of nobody in
    /// `destination`.
    #[must_use]
    pub fn unreachable(destination: IpNetwork) -> Self {
        Self {
            destination,
            metric: UNREACHABLE_METRIC,
        }
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `via <gateway> dev <VXLAN device> onlink`.
    Overlay {
        /// The remote node's `.0`.
        gateway: IpAddr,
    },
    /// `via <gateway>` over the underlay.
    Direct {
        /// The remote node's address.
        gateway: IpAddr,
    },
    /// `unreachable`.
    Unreachable,
}

/// What the table `inet tweed` is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    /// Whether and how packets to the world are masqueraded.
    pub masquerade: Option<Masquerade>,
    /// Whether pod → other node is masqueraded too.
    pub masquerade_nodes: bool,
    /// The VXLAN device's name, VNI and UDP port, where there is one.
    pub vxlan: Option<VxlanMatch>,
    /// Pod CIDRs of this node.
    pub local_cidrs: BTreeSet<IpNetwork>,
    /// Every pod CIDR of the cluster: never masqueraded towards. May overlap
    /// (a `--cluster-cidr` and what lies in it): the set's writer merges.
    pub cluster_cidrs: BTreeSet<IpNetwork>,
    /// Every address of every Node, the own ones included.
    pub node_addresses: BTreeSet<IpAddr>,
    /// Outer sources that VXLAN is taken from.
    pub vxlan_sources: BTreeSet<IpAddr>,
}

/// How a VXLAN packet is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VxlanMatch {
    /// Device name.
    pub device: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
}
