//! The desired state: the output of the planner, the input of the reconcilers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_component::schema;
pub use tweed_core::ownership::{LINK_GROUP as POD_LINK_GROUP, ROUTE_PROTOCOL};
use tweed_core::{family::Family, mac::Mac};

use super::host::Path;
use crate::config::Masquerade;

/// Metric of `unreachable` routes: the kernel prefers every other route with the
/// same destination.
pub const UNREACHABLE_METRIC: u32 = u32::MAX;

/// A node's network: the desired state of the kernel, and what the files that
/// the agent publishes say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// What the kernel should hold.
    pub desired: Desired,
    /// Own pod CIDRs, at most one per family, in the Node's order: the ranges
    /// of the conflist.
    pub pod_cidrs: Vec<IpNetwork>,
    /// MTU of pods, in bytes.
    pub pod_mtu: u32,
    /// Address and interface on the underlay.
    pub underlay: Underlay,
    /// Own addresses that other nodes send to, that of the underlay among them,
    /// with the index of the interface that has each.
    pub own_addresses: BTreeMap<IpAddr, u32>,
    /// For every family that pods have: the source of the node's packets to
    /// its own pods, `hostSource` of the conflist. That of the underlay's
    /// family is the underlay address; of the other family it is the Node's
    /// address, or, where it has none, the VXLAN device's; with neither the
    /// family is missing here.
    pub host_sources: BTreeMap<Family, IpAddr>,
}

/// Address and interface over which this node reaches the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Own address.
    pub address: IpAddr,
    /// Index of the interface that has it.
    pub interface: u32,
    /// Name of the interface.
    pub name: String,
    /// The way to the other nodes, which decides on the MTU. It may leave by
    /// another interface: with BGP to the host the address is on `lo`. None if it is
    /// not known, nor what it was: then [`Config::mtu`](crate::config::Config::mtu)
    /// says how large packets of pods are.
    pub path: Option<Path>,
}

impl Network {
    /// The first addresses of the own pod CIDRs that no VXLAN device has: by a local route other
    /// nodes can ask there whether they reach this one.
    pub fn local_addresses(&self) -> BTreeSet<IpNetwork> {
        let cidrs = self.pod_cidrs.iter();
        let without_device = cidrs.filter(|_| self.desired.vxlan.is_none());
        without_device.map(|cidr| cidr.network().into()).collect()
    }

    /// Whether `ip` is in a pod CIDR of this node. A local pod for whose address
    /// this is false got it before the own CIDR changed: it is reported so that
    /// somebody restarts it, and its address is never handed out again.
    pub fn holds(&self, ip: IpAddr) -> bool {
        self.pod_cidrs.iter().any(|cidr| cidr.contains(ip))
    }
}

schema! {
    /// Everything that the kernel should hold because of Nodes and config. What it
    /// should hold because of local pods is not part of it.
    pub struct Desired {
        /// Permanent neighbours on the VXLAN device.
        pub neighbours: BTreeMap<IpAddr, Mac>,
        /// FDB entries on the VXLAN device: VTEP MAC → outer address.
        pub fdb: BTreeMap<Mac, IpAddr>,
        /// Routes by destination. Two with the same destination differ in metric.
        pub routes: BTreeMap<RouteKey, Route>,
        /// The table `inet tweed`.
        pub ruleset: Ruleset,
    } with {
        /// The VXLAN device; none with the direct backend. While this node has no
        /// usable address or pod CIDR there is no `Desired` at all: see
        /// [`super::Plan::network`].
        pub vxlan: Option<VxlanDevice>,
        /// Addresses of the VXLAN device: the first of each own pod CIDR, as a /32
        /// or /128.
        pub vxlan_addresses: BTreeSet<IpNetwork>,
        /// Families of this node's pods, which need the kernel to forward.
        pub forwarding: BTreeSet<Family>,
    }

    /// The change that turns one [`Desired`] into another that differs in what other Nodes add:
    /// routes, neighbours, FDB entries and elements of the ruleset's sets.
    pub struct Delta
}

impl Desired {
    /// Addresses of other nodes that packets are sent to: outer destinations, and
    /// gateways of direct routes.
    pub fn peer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let gateways = self.routes.values().filter_map(|route| match route {
            Route::Direct { gateway, .. } => Some(*gateway),
            Route::Overlay { .. } | Route::Unreachable => None,
        });
        self.fdb.values().copied().chain(gateways)
    }
}

/// The VXLAN device. The kernel changes `mac` and `mtu` in place; for another
/// `vni`, `port` or `local` the device is made again.
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
    /// MAC by the function [`super::vtep::mac`].
    pub mac: Mac,
    /// In bytes.
    pub mtu: u32,
}

/// Key of a route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Destination.
    pub destination: IpNetwork,
    /// Metric; 0 is the kernel's default for the family.
    pub metric: u32,
}

impl RouteKey {
    /// The key of a route that leads to another node.
    pub fn to(destination: IpNetwork) -> Self {
        Self {
            destination,
            metric: 0,
        }
    }

    /// The key of the route that answers for addresses of nobody in
    /// `destination`.
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
        /// The first address of the remote pod CIDR, which the remote VXLAN
        /// device has.
        gateway: IpAddr,
    },
    /// `via <gateway> dev <link>`.
    Direct {
        /// The remote node's address.
        gateway: IpAddr,
        /// Index of the link that has the own address of the gateway's family.
        /// Another link may be connected to the same network, and lead elsewhere
        /// or nowhere.
        link: u32,
    },
    /// `unreachable`.
    Unreachable,
}

schema! {
    /// What the table `inet tweed` of nftables is made from.
    pub struct Ruleset {
        /// Pod CIDRs of this node.
        pub local_cidrs: BTreeSet<IpNetwork>,
        /// Every pod CIDR of the cluster: packets to them are never masqueraded.
        /// They may overlap (a `--cluster-cidr` and one in it); the set's writer
        /// merges them.
        pub cluster_cidrs: BTreeSet<IpNetwork>,
        /// Every address of every Node, the own ones included.
        pub node_addresses: BTreeSet<IpAddr>,
        /// The addresses at which nodes reach each other, for the rule by which packets
        /// from pods to nodes are treated otherwise than those to the world. Empty where
        /// both are masqueraded. Other addresses that a Node lists are not in it: a Node
        /// can list any address of the world.
        pub underlay_addresses: BTreeSet<IpAddr>,
        /// The VXLAN packets that are accepted: outer source addresses, each with the
        /// sources of the packets inside.
        pub vxlan_sources: BTreeSet<(IpAddr, IpNetwork)>,
        /// The address of each local pod, and the index of its link. They are no part
        /// of a plan, which is made of Nodes and config: the agent adds them.
        pub pod_links: BTreeSet<(IpAddr, u32)>,
    } with {
        /// Whether and how packets to outside of the cluster are masqueraded.
        pub masquerade: Option<Masquerade>,
        /// Whether that holds for IPv6 as well.
        pub masquerade_ipv6: bool,
        /// Whether pod → other node is masqueraded too, of both families.
        pub masquerade_nodes: bool,
        /// The VXLAN device's name, VNI and UDP port, where there is one.
        pub vxlan: Option<VxlanMatch>,
    }

    /// The change of the sets of a [`Ruleset`].
    pub struct RulesetDelta
}

impl Ruleset {
    /// Whether this node's pods reach addresses of other nodes with their own source.
    /// The answers then come through the VXLAN device, from those addresses.
    pub fn pods_reach_nodes_as_themselves(&self, family: Family) -> bool {
        let masquerades = match self.masquerade {
            Some(Masquerade::Random | Masquerade::RandomFully) => self.masquerade_nodes,
            Some(Masquerade::Off) | None => false,
        };
        // Without masquerading of IPv6 to the world, nodes are told from the world
        // by the addresses that the overlay uses; a node may have more.
        !masquerades || (family == Family::V6 && !self.masquerade_ipv6)
    }
}

/// What VXLAN packets of this network are recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VxlanMatch {
    /// Device name.
    pub device: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
}
