//! What this machine has, as far as the plan needs it. The agent reads it from
//! the kernel. A new plan is made only if something has changed that plans are
//! made from ([`Relevant`], and the ways): links of others come and go with their
//! containers, and a plan of thousands of Nodes takes milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::syntax;

/// The machine's own network, without the links that tweed made (the VXLAN
/// device, pod links): the result of a plan must not be an input of the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Interfaces by index.
    pub interfaces: BTreeMap<u32, Interface>,
    /// Connected routes of the main table.
    pub connected: BTreeSet<ConnectedRoute>,
    /// The ways to the addresses that
    /// [`OverlayPlanner::path_targets`](super::OverlayPlanner::path_targets)
    /// names, where there is one, or was the last time.
    pub paths: BTreeMap<IpAddr, Path>,
    /// The MTU that pods had before this run of the agent, in bytes, where that is
    /// known and there is no way to any of those addresses.
    pub last_pod_mtu: Option<u32>,
}

/// The way that packets of this machine take to an address. Ordered by MTU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// What it carries, in bytes: the MTU of the route, where it has one of its
    /// own, or of the link.
    pub mtu: u32,
    /// Name of the link that packets leave by: never `lo`.
    pub link: String,
}

/// An interface that tweed did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    /// That of IPv6, which routers may have advertised to be less.
    pub mtu_v6: u32,
    /// Switched on and with a carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub up: bool,
    /// It leads nowhere (`IFF_LOOPBACK`), so that its MTU says nothing.
    pub loopback: bool,
    /// Nothing is behind it (kind `dummy`): without a network its MTU says nothing.
    pub dummy: bool,
    /// It is a port of a bridge, a bond or the like, which has the addresses in its place.
    pub port: bool,
    /// In the kernel's order.
    pub addresses: Vec<HostAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The address with the prefix length of its subnet.
    pub network: IpNetwork,
    /// Whether it may be the source of packets that others answer.
    pub state: AddressState,
}

/// Whether an address can be the underlay's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressState {
    /// It lasts and is no duplicate. An address that is past its preferred
    /// lifetime (`IFA_F_DEPRECATED`) is usable too: the kernel only does not
    /// choose it by itself as the source of new connections.
    Usable,
    /// Duplicate address detection has not ended, or has found a duplicate
    /// (`IFA_F_TENTATIVE`, `IFA_F_DADFAILED`).
    Tentative,
    /// A privacy address (`IFA_F_TEMPORARY`): it works until the kernel removes
    /// it.
    Temporary,
}

/// A route without a gateway: its destinations are on the same link. The kernel makes
/// one for an address of an interface; programs that set up interfaces make them from
/// router advertisements, DHCP, and what a person has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectedRoute {
    /// Destination.
    pub destination: IpNetwork,
    /// Index of the interface.
    pub interface: u32,
    /// A person has written it: it says what is on the link, and not that the
    /// destination is a network with edges of its own. Where it takes the place of a
    /// route of tweed's, it is reported as any route of somebody else; it refuses no
    /// claim.
    pub by_hand: bool,
}

/// All that a plan takes from [`HostFacts`] but the ways.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Relevant {
    /// The interfaces that have an address of the own Node, with these addresses only.
    own: BTreeMap<u32, Interface>,
    /// The connected routes of these interfaces.
    own_connected: Vec<ConnectedRoute>,
    connected: BTreeSet<IpNetwork>,
    local: BTreeSet<IpAddr>,
    edges: BTreeMap<IpAddr, IpNetwork>,
}

impl HostFacts {
    /// What the plan of a Node with these addresses is made from. The rest of what
    /// follows here says what that is.
    pub(super) fn relevant(&self, own_addresses: &BTreeSet<IpAddr>) -> Relevant {
        let own_part = |interface: &Interface| {
            let mut own = interface.clone();
            (own.addresses).retain(|address| own_addresses.contains(&address.network.ip()));
            (!own.addresses.is_empty()).then_some(own)
        };
        let own: BTreeMap<u32, Interface> = (self.interfaces.iter())
            .filter_map(|(index, interface)| Some((*index, own_part(interface)?)))
            .collect();
        let connected = self.connected.iter();
        Relevant {
            own_connected: (connected.filter(|route| own.contains_key(&route.interface)))
                .copied()
                .collect(),
            own,
            connected: self.connected_networks().collect(),
            local: self.networks().map(|network| network.ip()).collect(),
            edges: self.edges(),
        }
    }

    /// The addresses of all interfaces that a Node could claim, each with its prefix
    /// length. Every link that is up has a link-local one, which no Node can have.
    pub fn networks(&self) -> impl Iterator<Item = IpNetwork> {
        let addresses = self.interfaces.values().flat_map(|i| &i.addresses);
        (addresses.map(|address| address.network)).filter(|network| !syntax::is_reserved(*network))
    }

    /// The networks that this machine is connected to, as far as it has been told, and that
    /// a Node could claim.
    pub fn connected_networks(&self) -> impl Iterator<Item = IpNetwork> {
        let not_by_hand = self.connected.iter().filter(|route| !route.by_hand);
        let destinations = not_by_hand.map(|route| route.destination);
        destinations.filter(|network| !syntax::is_reserved(*network))
    }

    /// The addresses of the networks here that no machine can have, each with its
    /// network: the first one (all-zeros broadcast, or IPv6's anycast address of
    /// routers) and in IPv4 the last one (broadcast). A link of two machines
    /// (RFC 3021, RFC 6164) has neither.
    pub fn edges(&self) -> BTreeMap<IpAddr, IpNetwork> {
        // A network may have no connected route (`noprefixroute`).
        (self.connected_networks().chain(self.networks()))
            .filter_map(|network| IpNetwork::new(network.network(), network.prefix()).ok())
            .flat_map(|network| {
                let (first, last) = (network.network(), network.broadcast());
                let edges = match network {
                    IpNetwork::V4(network) if network.prefix() <= 30 => vec![first, last],
                    IpNetwork::V6(network) if network.prefix() <= 126 => vec![first],
                    _ => vec![],
                };
                edges.into_iter().map(move |edge| (edge, network))
            })
            .collect()
    }

    /// The interface that has `ip`, with its index and the address's state. Of several it
    /// is the one that can lead to other machines by it: other programs have copies of a
    /// node's address on interfaces that lead nowhere (IPVS on `kube-ipvs0`, load balancers
    /// on `lo`, a bridge's that its port has kept).
    ///
    /// The network around the address comes before the carrier, which may be lost for a
    /// while: a copy elsewhere must not take its place meanwhile.
    pub fn holder(&self, ip: IpAddr) -> Option<(u32, &Interface, AddressState)> {
        self.interfaces
            .iter()
            .flat_map(|(index, interface)| {
                interface
                    .addresses
                    .iter()
                    .filter(move |address| address.network.ip() == ip)
                    .map(move |address| (*index, interface, address.state))
            })
            .min_by_key(|(index, interface, state)| {
                (
                    *state != AddressState::Usable,
                    !self.is_in_network(*index, ip),
                    !interface.up,
                    interface.port,
                    interface.loopback || interface.dummy,
                    *index,
                )
            })
    }

    /// The way that most of [`Self::paths`] take. Nodes may be reached by
    /// different ways, and a single one of them, which may list any address,
    /// decides nothing for the others. Of two that equally many take it is the one
    /// that carries less.
    pub fn usual_path(&self) -> Option<&Path> {
        let mut takers: BTreeMap<&Path, usize> = BTreeMap::new();
        for path in self.paths.values() {
            *takers.entry(path).or_default() += 1;
        }
        let usual = takers.into_iter().rev().max_by_key(|(_, takers)| *takers);
        usual.map(|(path, _)| path)
    }

    /// Whether the interface with this index is connected to a network with room
    /// for other machines of the family of `ip`.
    pub fn has_network(&self, index: u32, ip: IpAddr) -> bool {
        self.connected.iter().any(|route| {
            let destination = route.destination;
            route.interface == index
                && destination.is_ipv4() == ip.is_ipv4()
                && destination.prefix() < IpNetwork::from(ip).prefix()
        })
    }

    /// Whether `ip` is in a network of that interface with room for other machines.
    fn is_in_network(&self, index: u32, ip: IpAddr) -> bool {
        self.connected.iter().any(|route| {
            let destination = route.destination;
            route.interface == index
                && destination.contains(ip)
                && destination.prefix() < IpNetwork::from(ip).prefix()
        })
    }

    /// Whether `ip` is in a connected route of the interface with this index.
    pub fn on_link(&self, index: u32, ip: IpAddr) -> bool {
        self.connected
            .iter()
            .any(|route| route.interface == index && route.destination.contains(ip))
    }
}
