//! The mirror: what the kernel was last seen to hold, as far as it concerns
//! tweed.
//!
//! Three things change it and nothing else: what was read replaces a whole part, or
//! all that is on one link ([`OnLink`]); a write that the kernel acknowledged is
//! entered by [`Mirror::apply`]; and when a link is gone, its objects are removed with
//! it. A notification never changes it; [`super::notification`] only says what has to
//! be read again.

mod on_link;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use ipnetwork::IpNetwork;
use tweed_core::{keyed, mac::Mac};
use tweed_netlink::route::{self, Kind, Route};
use tweed_netlink::{address::Address, fdb::Fdb, leaving::Deletion, link::Link, owned};
use tweed_planner::overlay::desired::RouteKey;
use tweed_planner::overlay::host::{AddressState, ConnectedRoute};

use super::change::Change;
use super::key::{AddressKey, FdbKey, NeighbourKey, route_key, taken_key};

pub use on_link::{OnLink, is_link_local};

/// A part of the mirror that is read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MirrorPart {
    /// Links, with their settings.
    Links,
    /// Addresses of all links.
    Addresses,
    /// Connected routes.
    Connected,
    /// Routes of protocol 116.
    Routes,
    /// Routes of others beside those, or inside their destinations. The kernel shows them
    /// only among all routes of the main table, of which a machine may have hundreds of
    /// thousands.
    ForeignRoutes,
    /// Permanent neighbours.
    Neighbours,
    /// The FDB of the VXLAN device.
    Fdb,
}

impl MirrorPart {
    /// Every part, in the order in which they are read: the later ones need to
    /// know the links.
    pub const ALL: [Self; 7] = [
        Self::Links,
        Self::Addresses,
        Self::Connected,
        Self::Routes,
        Self::ForeignRoutes,
        Self::Neighbours,
        Self::Fdb,
    ];

    /// Every part that plans depend on or are compared with: what a failure, a lost
    /// notification or a link that went down makes stale. Routes of others are only
    /// named: after those they are read by the clock.
    pub const COMPARED: [Self; 6] = [
        Self::Links,
        Self::Addresses,
        Self::Connected,
        Self::Routes,
        Self::Neighbours,
        Self::Fdb,
    ];
}

/// What the kernel was last seen to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirror {
    /// MAC of this node's VXLAN device by the frozen function. The device is
    /// recognised by it even if somebody renamed it.
    pub vtep_mac: Option<Mac>,
    /// How often the VXLAN device was given its carrier back that somebody took away.
    pub carrier_given: u8,
    /// All links by index.
    pub links: BTreeMap<u32, Link>,
    /// All addresses.
    pub addresses: BTreeMap<AddressKey, AddressState>,
    /// Routes of protocol 116 in the main table. The kernel allows several
    /// with one key.
    pub routes: BTreeMap<RouteKey, Vec<Route>>,
    /// Routes of others in the main table beside those of tweed with this key
    /// ([`taken_key`]), and longer ones inside their destinations. The kernel adds one beside
    /// before or behind tweed's if it is asked to (`ip route prepend`, `append`).
    pub foreign: BTreeMap<RouteKey, Vec<Route>>,
    /// Routes that the kernel shows as tweed's and that are not: next hops that somebody
    /// added to an IPv6 route of tweed's. They are kept with
    /// [`route::UNSPECIFIED`] protocol.
    pub disowned: Vec<Route>,
    /// Connected routes of the main table.
    pub connected: BTreeSet<ConnectedRoute>,
    /// Permanent neighbours. The kernel adds and removes the others by itself.
    pub neighbours: BTreeMap<NeighbourKey, Mac>,
    /// The FDB of tweed's VXLAN devices. The kernel allows several entries
    /// with one MAC.
    pub fdb: BTreeMap<FdbKey, Vec<Fdb>>,
}

/// Whether an address can be used.
pub fn address_state(address: &Address) -> AddressState {
    if address.tentative {
        AddressState::Tentative
    } else if address.temporary {
        AddressState::Temporary
    } else {
        AddressState::Usable
    }
}

/// Protocols of the routes that say what is on a link: the kernel's for its addresses,
/// and those of programs that set up links (systemd-networkd, NetworkManager, dhcpcd),
/// whose addresses may have no route of the kernel's (`noprefixroute`, a /128).
pub const CONNECTED_PROTOCOLS: [u8; 4] = [
    route::KERNEL_PROTOCOL,
    route::RA_PROTOCOL,
    route::DHCP_PROTOCOL,
    route::STATIC_PROTOCOL,
];

/// `route` as a connected one, if it is. A route to a single machine that the kernel has
/// not made says nothing of a network: other plugins have one for each of their pods.
pub fn connected(route: &Route) -> Option<ConnectedRoute> {
    let destination = route.destination;
    let is_host = destination.prefix() == IpNetwork::from(destination.ip()).prefix();
    let is_connected = route.table == route::MAIN_TABLE
        && CONNECTED_PROTOCOLS.contains(&route.protocol)
        && route.kind == Kind::Unicast
        && route.gateway.is_none()
        // To the kernel the gateways in an IPv4 route of a wider scope are not on the link.
        && (route.link_scope || destination.is_ipv6())
        && destination.prefix() > 0
        && (route.protocol == route::KERNEL_PROTOCOL || !is_host);
    let interface = route.out.filter(|_| is_connected)?;
    Some(ConnectedRoute {
        destination,
        interface,
        by_hand: route.protocol == route::STATIC_PROTOCOL,
    })
}

impl Mirror {
    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// The name of a link, for messages.
    pub fn link_name(&self, index: u32) -> &str {
        self.links.get(&index).map_or("(gone)", |link| &link.name)
    }

    /// Whether `link` is a VXLAN device of tweed: by its name, or by its MAC.
    pub fn is_device(&self, link: &Link) -> bool {
        owned::is_device(link) || (self.vtep_mac).is_some_and(|mac| owned::is_device_of(link, mac))
    }

    /// Indices of the links that are being deleted.
    pub fn leaving_links(&self) -> BTreeSet<u32> {
        let links = self.links.values();
        let leaving = links.filter(|link| owned::is_leaving_link(link));
        leaving.map(|link| link.index).collect()
    }

    /// The writes that delete the links that are being deleted; `random` as in
    /// [`Deletion::of`].
    pub fn delete_leaving_links(&self, random: impl FnOnce() -> u32) -> Vec<Change> {
        match Deletion::of(self.links.values(), random) {
            Deletion::Group(group, leaving) => {
                let links = leaving.iter().map(|link| link.index).collect();
                vec![Change::RemoveLeavingLinks { group, links }]
            }
            Deletion::Links(links) => {
                let remove = |link: &&Link| Change::RemoveLink { index: link.index };
                links.iter().map(remove).collect()
            }
        }
    }

    /// The routes of tweed with this key.
    pub fn routes_with(&self, key: &RouteKey) -> &[Route] {
        self.routes.get(key).map_or(&[], Vec::as_slice)
    }

    /// What the kernel's answer to the removal of `route`, that there is no such one,
    /// says of a route that was seen there: it is gone, or it is not tweed's. The
    /// next dump tells which ([`Self::set_routes`]).
    pub fn disown(&mut self, route: &Route) {
        self.remove_route(route);
        self.disowned.push(Route {
            protocol: route::UNSPECIFIED,
            ..route.clone()
        });
    }

    /// Enters the routes of a dump that the kernel shows as tweed's. Says whether
    /// any differ that the overlay's plan is compared with.
    pub fn set_routes(&mut self, routes: Vec<Route>) -> bool {
        // Most dumps show what is known: of thousands of routes that needs no second copy.
        if self.disowned.is_empty() && self.has_just(&routes) {
            return false;
        }
        let before = (mem::take(&mut self.routes), mem::take(&mut self.disowned));
        for route in routes {
            let disowned = Route {
                protocol: route::UNSPECIFIED,
                ..route.clone()
            };
            if before.1.contains(&disowned) {
                self.disowned.push(disowned)
            } else {
                self.add_route(&route)
            }
        }
        let diff = keyed::diff(&before.0, &self.routes);
        let mut changed = diff.removed.values().chain(diff.added.values());
        changed.any(|routes| !self.all_lead_to_pods(routes)) || before.1 != self.disowned
    }

    /// Whether these are the routes that are known.
    fn has_just(&self, routes: &[Route]) -> bool {
        let is_known = |route: &Route| {
            let same = self.routes.get(&route_key(route));
            same.is_some_and(|same| same.contains(route))
        };
        let known: usize = self.routes.values().map(Vec::len).sum();
        known == routes.len() && routes.iter().all(is_known)
    }

    /// Enters the routes of others beside those of tweed. Says whether anything differs.
    pub fn set_foreign(&mut self, routes: Vec<Route>) -> bool {
        let before = mem::take(&mut self.foreign);
        for route in routes {
            let place = self.foreign.entry(taken_key(&route)).or_default();
            place.push(route);
        }
        before != self.foreign
    }

    /// Whether a route of somebody else can take packets from one of tweed's: it has the key
    /// of one, or a longer destination inside that of one.
    pub fn can_take(&self, route: &Route) -> bool {
        self.routes.contains_key(&taken_key(route)) || self.is_inside(route.destination)
    }

    /// Whether tweed has a route to a wider destination around this one.
    fn is_inside(&self, destination: IpNetwork) -> bool {
        (0..destination.prefix()).any(|prefix| {
            let unmasked = IpNetwork::new(destination.network(), prefix);
            let wider = unmasked.and_then(|wider| IpNetwork::new(wider.network(), prefix));
            wider.is_ok_and(|destination| {
                let key = |metric| RouteKey {
                    destination,
                    metric,
                };
                self.routes.range(key(0)..=key(u32::MAX)).next().is_some()
            })
        })
    }

    /// Whether [`Self::beside`] has anything under this key.
    pub fn has_beside(&self, key: &RouteKey) -> bool {
        let mut disowned = self.disowned.iter();
        self.foreign.contains_key(key) || disowned.any(|route| route_key(route) == *key)
    }

    /// Everything of others that may take the packets of a route of tweed with this key.
    pub fn beside(&self) -> BTreeMap<RouteKey, Vec<&Route>> {
        let foreign = self.foreign.iter();
        let mut beside: BTreeMap<_, Vec<_>> = foreign
            .map(|(key, routes)| (*key, routes.iter().collect()))
            .collect();
        for route in &self.disowned {
            beside.entry(route_key(route)).or_default().push(route);
        }
        beside
    }

    /// Enters a change that the kernel has acknowledged.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::SetLink {
                index,
                up,
                mtu,
                mac,
            } => self.change_link(*index, |link| {
                link.up |= up;
                link.mtu = mtu.unwrap_or(link.mtu);
                link.mac = mac.or(link.mac);
            }),
            Change::SetLinkGroup { index, group } => {
                self.change_link(*index, |link| link.group = *group);
            }
            Change::RenameLink { index, name } => {
                self.change_link(*index, |link| link.name.clone_from(name));
            }
            Change::ReleaseLink { index } => self.change_link(*index, |link| link.master = None),
            Change::GiveCarrier { index } => {
                self.carrier_given += 1;
                self.change_link(*index, |link| link.proto_down = false);
            }
            Change::RemoveLink { index } => self.remove_link(*index),
            Change::RemoveLeavingLinks { links, .. } => {
                links.iter().for_each(|index| self.remove_link(*index));
            }
            Change::AddAddress(key) => {
                self.addresses.insert(*key, AddressState::Usable);
            }
            Change::RemoveAddress(key) => {
                self.addresses.remove(key);
            }
            Change::AddRoute(route) => self.add_route(route),
            Change::ReplaceRoute { old, new } => {
                self.remove_route(old);
                self.add_route(new);
            }
            Change::RemoveRoute(route) => self.remove_route(route),
            Change::SetNeighbour { key, mac } => {
                self.neighbours.insert(*key, *mac);
            }
            Change::RemoveNeighbour(key) => {
                self.neighbours.remove(key);
            }
            Change::SetFdb { key, remote } => {
                let entry = Fdb {
                    index: key.device,
                    mac: key.mac,
                    destination: Some(*remote),
                    permanent: true,
                    more: false,
                };
                self.fdb.insert(*key, vec![entry]);
            }
            Change::RemoveFdb(key) => {
                self.fdb.remove(key);
            }
        }
    }

    /// Replaces the links by `links`. Objects of a link that is gone are removed
    /// with it: the kernel sends no notification of most of them. Says whether anything
    /// differs that the overlay's plan is compared with.
    pub fn set_links(&mut self, links: BTreeMap<u32, Link>) -> bool {
        let diff = keyed::diff(&self.links, &links);
        let indices = diff.removed.into_keys().chain(diff.added.into_keys());
        let changed: BTreeSet<u32> = indices.collect();
        if changed.is_empty() {
            return false;
        }
        let was_of_overlay = self.has_overlay_on(&changed);
        for index in changed.iter().filter(|index| !links.contains_key(index)) {
            self.remove_link(*index);
        }
        self.links = links;
        was_of_overlay || self.has_overlay_on(&changed)
    }

    fn change_link(&mut self, index: u32, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(&index) {
            change(link);
        }
    }

    fn remove_link(&mut self, index: u32) {
        self.links.remove(&index);
        self.remove_objects(index);
        let foreign = &mut self.foreign;
        retain_routes(foreign, |route| route.out != Some(index));
        self.disowned.retain(|route| route.out != Some(index));
        self.fdb.retain(|key, _| key.device != index);
    }

    /// Removes what [`OnLink`] has of a link, but for the link itself.
    fn remove_objects(&mut self, index: u32) {
        self.addresses.retain(|key, _| key.device != index);
        retain_routes(&mut self.routes, |route| route.out != Some(index));
        self.connected.retain(|route| route.interface != index);
        self.neighbours.retain(|key, _| key.device != index);
    }

    fn add_route(&mut self, route: &Route) {
        let routes = self.routes.entry(route_key(route)).or_default();
        // Mostly it is the only one: room for four would be three quarters of the memory.
        routes.reserve_exact(1);
        routes.push(route.clone());
    }

    fn remove_route(&mut self, route: &Route) {
        let key = route_key(route);
        if let Some(routes) = self.routes.get_mut(&key) {
            routes.retain(|other| other != route);
            if routes.is_empty() {
                self.routes.remove(&key);
            }
        }
    }
}

fn retain_routes(table: &mut BTreeMap<RouteKey, Vec<Route>>, keep: impl Fn(&Route) -> bool) {
    table.retain(|_, routes| {
        routes.retain(&keep);
        !routes.is_empty()
    });
}

#[cfg(test)]
mod tests;
