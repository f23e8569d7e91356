//! Links as a whole: what the mirror has on one, and what a change of it can concern.
//!
//! Containers of other runtimes and pods come and go with their links. What is on such a
//! link is read and compared by itself, so that it costs nothing of what thousands of
//! Nodes have in the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_core::mac::Mac;
use tweed_netlink::route::Route;
use tweed_netlink::{link::Link, owned};
use tweed_planner::overlay::desired::RouteKey;
use tweed_planner::overlay::host::{AddressState, ConnectedRoute};

use super::Mirror;
use crate::reconcile::kernel::key::{AddressKey, NeighbourKey, route_key};

/// A link and the objects on it, without the FDB: only VXLAN devices of tweed have one
/// here, and what these have is read as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnLink {
    /// The link; none if there is none of this index.
    pub link: Option<Link>,
    /// Its addresses.
    pub addresses: BTreeMap<AddressKey, AddressState>,
    /// Routes of protocol 116 that leave by it.
    pub routes: Vec<Route>,
    /// Its connected routes.
    pub connected: BTreeSet<ConnectedRoute>,
    /// Its permanent neighbours.
    pub neighbours: BTreeMap<NeighbourKey, Mac>,
}

impl Mirror {
    /// Enters the link with this index as it was read. Says whether anything differs that
    /// the overlay's plan is compared with.
    pub fn set_link(&mut self, index: u32, read: OnLink) -> bool {
        if self.on_link(index) == read {
            return false;
        }
        let links = BTreeSet::from([index]);
        let was_of_overlay = self.has_overlay_on(&links);
        match read.link {
            Some(link) => {
                self.remove_objects(index);
                self.links.insert(index, link);
            }
            None => self.remove_link(index),
        }
        self.addresses.extend(read.addresses);
        self.connected.extend(read.connected);
        self.neighbours.extend(read.neighbours);
        for route in &read.routes {
            self.add_route(route);
        }
        was_of_overlay || self.has_overlay_on(&links)
    }

    /// What there is on the link with this index.
    fn on_link(&self, index: u32) -> OnLink {
        let addresses = self.addresses.iter();
        let neighbours = self.neighbours.iter();
        let mut routes: Vec<Route> = (self.routes.values().flatten())
            .filter(|route| route.out == Some(index))
            .cloned()
            .collect();
        routes.sort_by_key(route_key);
        OnLink {
            link: self.links.get(&index).cloned(),
            addresses: (addresses.filter(|(key, _)| key.device == index))
                .map(|(key, state)| (*key, *state))
                .collect(),
            routes,
            connected: (self.connected.iter())
                .filter(|route| route.interface == index)
                .copied()
                .collect(),
            neighbours: (neighbours.filter(|(key, _)| key.device == index))
                .map(|(key, mac)| (*key, *mac))
                .collect(),
        }
    }

    /// Whether what happens to the link with this index takes nothing along but what is on
    /// it, and nothing of the overlay is on it. With any other link the kernel may remove
    /// objects of others without notification: with an address of a link the routes that
    /// have it as their source.
    pub fn is_apart(&self, index: u32) -> bool {
        let link = self.links.get(&index);
        let is_other = |link: &Link| !link.loopback && !self.is_device(link);
        let mut addresses = self.addresses.keys().filter(|key| key.device == index);
        let mut disowned = self.disowned.iter();
        link.is_none_or(is_other)
            && addresses.all(|key| is_link_local(key.network.ip()))
            && disowned.all(|route| route.out != Some(index))
    }

    /// As much of it as says what else was removed with a link or an address:
    /// [`crate::reconcile::kernel::notification::losses`].
    pub fn removes_others(&self) -> Self {
        Self {
            vtep_mac: self.vtep_mac,
            links: self.links.clone(),
            addresses: self.addresses.clone(),
            disowned: self.disowned.clone(),
            ..Self::default()
        }
    }

    /// Whether the overlay's plan is compared with one of these links, or with a route that
    /// leaves by one. Else whatever is on them is left to [`crate::reconcile::pods`]
    /// or to others.
    pub fn has_overlay_on(&self, links: &BTreeSet<u32>) -> bool {
        let is_on = |route: &Route| route.out.is_some_and(|index| links.contains(&index));
        let mut known = links.iter().filter_map(|index| self.links.get(index));
        let mut routes = self.routes.values();
        known.any(|link| self.is_device(link) || owned::is_device_name(&link.name))
            || routes.any(|routes| routes.iter().any(is_on) && !self.all_lead_to_pods(routes))
    }

    /// Whether no route with this key is the overlay's.
    pub fn has_only_pods_at(&self, key: &RouteKey) -> bool {
        self.all_lead_to_pods(self.routes_with(key))
    }

    pub(super) fn all_lead_to_pods(&self, routes: &[Route]) -> bool {
        routes.iter().all(|route| self.leads_to_a_pod(route))
    }

    /// A link that the mirror does not have is newer than the links in it: that of a pod
    /// which is being added, as far as anybody knows.
    pub fn leads_to_a_pod(&self, route: &Route) -> bool {
        route.out.is_some_and(|device| {
            let link = self.links.get(&device);
            link.is_none_or(owned::is_any_pod_link)
        })
    }
}

/// Whether every link may have `ip`, and no route has it as its source.
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}
