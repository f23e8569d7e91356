//! What tells kernel objects of one kind apart: the keys of the [`super::mirror`].

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::mac::Mac;
use tweed_netlink::route::{IPV6_DEFAULT_METRIC, Route};
use tweed_netlink::{address::Address, fdb::Fdb, neighbour::Neighbour};
use tweed_planner::overlay::desired::RouteKey;

/// Key of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressKey {
    /// Index of the device.
    pub device: u32,
    /// The address with its prefix length.
    pub network: IpNetwork,
}

impl AddressKey {
    /// The key of `address`.
    pub fn of(address: &Address) -> Self {
        let (device, network) = (address.index, address.network);
        Self { device, network }
    }
}

/// Key of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourKey {
    /// Index of the device.
    pub device: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
}

impl NeighbourKey {
    /// The key of `neighbour`.
    pub fn of(neighbour: &Neighbour) -> Self {
        let (device, ip) = (neighbour.index, neighbour.ip);
        Self { device, ip }
    }
}

/// Key of the FDB entries of a MAC: the kernel allows several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdbKey {
    /// Index of the VXLAN device.
    pub device: u32,
    /// Inner destination.
    pub mac: Mac,
}

impl FdbKey {
    /// The key of `entry`.
    pub fn of(entry: &Fdb) -> Self {
        let (device, mac) = (entry.index, entry.mac);
        Self { device, mac }
    }
}

/// The key of `route`.
pub fn route_key(route: &Route) -> RouteKey {
    RouteKey {
        destination: route.destination,
        metric: route.metric,
    }
}

/// The key that a route of tweed has where `route`, of somebody else, takes its
/// packets: the same, and for IPv6, where tweed's routes have the default metric, that
/// of every smaller metric.
pub fn taken_key(route: &Route) -> RouteKey {
    let key = route_key(route);
    if route.destination.is_ipv6() && key.metric < IPV6_DEFAULT_METRIC {
        RouteKey { metric: 0, ..key }
    } else {
        key
    }
}
