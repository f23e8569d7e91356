//! What a notification means: which parts of the mirror have to be read again.
//!
//! A notification is never believed, for by now the kernel may hold something
//! else. It is compared with the mirror: one that says what the mirror knows is
//! an echo of tweed's own write, or news that was read already, and costs
//! nothing.

use std::collections::BTreeSet;

use tweed_netlink::link::Link;
use tweed_netlink::monitor::Notification;
use tweed_netlink::route::{self, Kind, Route};

use super::mirror::{AddressKey, Mirror, NeighbourKey, fdb_key, route_key};
use tweed_netlink::owned;
use tweed_planner::overlay::host::ConnectedRoute;

/// A part of the mirror that is read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Links, with their settings.
    Links,
    /// Addresses.
    Addresses,
    /// Connected routes.
    Connected,
    /// Routes of protocol 116.
    Routes,
    /// Permanent neighbours.
    Neighbours,
    /// The FDB of the VXLAN device.
    Fdb,
}

impl Part {
    /// Every part, in the order in which they are read: the later ones need to
    /// know the links.
    pub const ALL: [Self; 6] = [
        Self::Links,
        Self::Addresses,
        Self::Connected,
        Self::Routes,
        Self::Neighbours,
        Self::Fdb,
    ];
}

/// The parts of `mirror` that `notification` casts doubt on.
#[must_use]
pub fn doubts(mirror: &Mirror, notification: &Notification) -> BTreeSet<Part> {
    let parts: &[Part] = match notification {
        Notification::Overflow => &Part::ALL,
        Notification::Link(link) => link_parts(mirror, link),
        Notification::LinkGone(link) => match mirror.links.contains_key(&link.index) {
            true => &Part::ALL,
            false => &[],
        },
        Notification::Address(address) => {
            let key = AddressKey {
                device: address.index,
                network: address.network,
            };
            match mirror.addresses.get(&key) {
                Some(state) if *state == super::read::address_state(address) => &[],
                _ => &[Part::Addresses, Part::Connected],
            }
        }
        // With an address go the routes that name it as their source, and with
        // a device's last one all its routes and neighbours, none of them told.
        Notification::AddressGone(address) => {
            let key = AddressKey {
                device: address.index,
                network: address.network,
            };
            match mirror.addresses.contains_key(&key) {
                true => &[
                    Part::Addresses,
                    Part::Connected,
                    Part::Routes,
                    Part::Neighbours,
                ],
                false => &[],
            }
        }
        Notification::Route(route) => route_parts(mirror, route),
        Notification::RouteGone(route) => route_gone_parts(mirror, route),
        Notification::Neighbour(neighbour) => {
            let key = NeighbourKey {
                device: neighbour.index,
                ip: neighbour.ip,
            };
            let known = mirror.neighbours.get(&key).map(|mac| mac.0);
            let told = neighbour.mac.filter(|_| neighbour.permanent);
            if known == told {
                &[]
            } else {
                &[Part::Neighbours]
            }
        }
        Notification::NeighbourGone(neighbour) => {
            let key = NeighbourKey {
                device: neighbour.index,
                ip: neighbour.ip,
            };
            match mirror.neighbours.contains_key(&key) {
                true => &[Part::Neighbours],
                false => &[],
            }
        }
        Notification::Fdb(entry) => {
            let link = mirror.links.get(&entry.index);
            let ours = link.is_none_or(|link| mirror.is_device(link));
            let known = mirror
                .fdb
                .get(&fdb_key(entry))
                .is_some_and(|entries| entries.contains(entry));
            if ours && !known { &[Part::Fdb] } else { &[] }
        }
        Notification::FdbGone(entry) => match mirror.fdb.get(&fdb_key(entry)) {
            Some(entries) if entries.contains(entry) => &[Part::Fdb],
            _ => &[],
        },
    };
    parts.iter().copied().collect()
}

/// A link that goes down takes along, untold, its routes and neighbours and its
/// IPv6 addresses. It may be up again by the time that it is looked at, so the
/// message alone tells.
fn link_parts(mirror: &Mirror, link: &Link) -> &'static [Part] {
    match mirror.links.get(&link.index) {
        Some(known) if known.up && !link.up => &Part::ALL,
        Some(known) if known == link => &[],
        _ => &[Part::Links],
    }
}

/// What may be gone untold if reading `part` turned `before` into `after`.
#[must_use]
pub fn losses(before: &Mirror, after: &Mirror, part: Part) -> &'static [Part] {
    let went_down = |link: &&Link| {
        let is_up = |link: &Link| link.up;
        link.up && !after.links.get(&link.index).is_some_and(is_up)
    };
    match part {
        Part::Links if before.links.values().any(|link| went_down(&link)) => &[
            Part::Addresses,
            Part::Connected,
            Part::Routes,
            Part::Neighbours,
            Part::Fdb,
        ],
        Part::Addresses
            if before
                .addresses
                .keys()
                .any(|key| !after.addresses.contains_key(key)) =>
        {
            &[Part::Connected, Part::Routes, Part::Neighbours]
        }
        _ => &[],
    }
}

/// A route that replaces another tells of itself only. So one of anybody's that
/// has the key of ours counts as news of ours.
fn route_parts(mirror: &Mirror, route: &Route) -> &'static [Part] {
    if route.table != route::MAIN_TABLE {
        return &[];
    }
    if let Some(connected) = connected(route) {
        return match mirror.connected.contains(&connected) {
            true => &[],
            false => &[Part::Connected],
        };
    }
    let ours = mirror.routes_with(&route_key(route));
    match owned::is_route(route) {
        true if ours.contains(route) => &[],
        false if ours.is_empty() => &[],
        _ => &[Part::Routes],
    }
}

fn route_gone_parts(mirror: &Mirror, route: &Route) -> &'static [Part] {
    if owned::is_route(route) && mirror.routes_with(&route_key(route)).contains(route) {
        return &[Part::Routes];
    }
    match connected(route) {
        Some(connected) if mirror.connected.contains(&connected) => &[Part::Connected],
        _ => &[],
    }
}

/// `route` as a connected one, if it is: made by the kernel for an address.
#[must_use]
pub fn connected(route: &Route) -> Option<ConnectedRoute> {
    let is_connected = route.table == route::MAIN_TABLE
        && route.protocol == route::KERNEL_PROTOCOL
        && route.kind == Kind::Unicast
        && route.gateway.is_none();
    route
        .out
        .filter(|_| is_connected)
        .map(|interface| ConnectedRoute {
            destination: route.destination,
            interface,
        })
}

#[cfg(test)]
mod tests {
    use tweed_core::mac::Mac;
    use tweed_netlink::address::Address;
    use tweed_netlink::link::Vxlan;
    use tweed_netlink::neighbour::{Fdb, Neighbour};

    use super::*;
    use crate::reconcile::kernel::change::Change;
    use crate::reconcile::kernel::mirror::FdbKey;

    const DEVICE: u32 = 7;

    fn link() -> Link {
        Link {
            index: DEVICE,
            name: "tweed.1".to_owned(),
            up: true,
            vxlan: Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap())),
            ..Link::default()
        }
    }

    fn route() -> Route {
        Route {
            out: Some(DEVICE),
            gateway: Some("10.244.2.0".parse().unwrap()),
            onlink: true,
            ..Route::to("10.244.2.0/24".parse().unwrap(), 116)
        }
    }

    fn neighbour() -> Neighbour {
        Neighbour {
            index: DEVICE,
            ip: "10.244.2.0".parse().unwrap(),
            mac: Some([2, 0, 0, 0, 0, 2]),
            permanent: true,
        }
    }

    fn fdb() -> Fdb {
        Fdb {
            index: DEVICE,
            mac: [2, 0, 0, 0, 0, 2],
            destination: Some("192.0.2.2".parse().unwrap()),
            permanent: true,
            more: false,
        }
    }

    fn address() -> Address {
        Address {
            index: DEVICE,
            network: "10.244.1.0/32".parse().unwrap(),
            tentative: false,
            passing: false,
        }
    }

    /// A mirror into which tweed itself wrote all of the above.
    fn mirror() -> Mirror {
        let mut mirror = Mirror::default();
        mirror.set_links([(DEVICE, link())].into());
        let device = DEVICE;
        for change in [
            Change::AddAddress(AddressKey {
                device,
                network: address().network,
            }),
            Change::AddRoute(route()),
            Change::SetNeighbour {
                key: NeighbourKey {
                    device,
                    ip: neighbour().ip,
                },
                mac: Mac([2, 0, 0, 0, 0, 2]),
            },
            Change::SetFdb {
                key: FdbKey {
                    device,
                    mac: Mac(fdb().mac),
                },
                remote: "192.0.2.2".parse().unwrap(),
            },
        ] {
            mirror.apply(&change);
        }
        mirror
    }

    fn parts(notification: Notification) -> Vec<Part> {
        doubts(&mirror(), &notification).into_iter().collect()
    }

    #[test]
    fn echoes_of_own_writes_cost_nothing() {
        for echo in [
            Notification::Link(Box::new(link())),
            Notification::Address(address()),
            Notification::Route(route()),
            Notification::Neighbour(neighbour()),
            Notification::Fdb(fdb()),
        ] {
            assert_eq!(doubts(&mirror(), &echo), BTreeSet::new(), "{echo:?}");
        }
    }

    #[test]
    fn what_is_gone_is_looked_for() {
        assert_eq!(parts(Notification::RouteGone(route())), [Part::Routes]);
        assert_eq!(
            parts(Notification::NeighbourGone(neighbour())),
            [Part::Neighbours]
        );
        assert_eq!(parts(Notification::FdbGone(fdb())), [Part::Fdb]);
        assert_eq!(parts(Notification::LinkGone(Box::new(link()))), Part::ALL);
        let gone = parts(Notification::AddressGone(address()));
        assert!(gone.contains(&Part::Routes) && gone.contains(&Part::Neighbours));
    }

    #[test]
    fn a_device_that_went_down_lost_its_routes_even_if_it_is_up_again() {
        let down = Link {
            up: false,
            ..link()
        };
        assert_eq!(parts(Notification::Link(Box::new(down))), Part::ALL);
        let smaller = Link {
            mtu: 1000,
            ..link()
        };
        assert_eq!(parts(Notification::Link(Box::new(smaller))), [Part::Links]);
    }

    #[test]
    fn a_loss_that_is_read_before_it_is_told_counts_as_much() {
        let before = mirror();
        let mut after = before.clone();
        after.addresses.clear();
        assert!(losses(&before, &after, Part::Addresses).contains(&Part::Routes));
        assert!(losses(&before, &before, Part::Addresses).is_empty());
        let mut down = link();
        down.up = false;
        after.links = [(DEVICE, down)].into();
        assert!(losses(&before, &after, Part::Links).contains(&Part::Fdb));
        assert!(losses(&after, &before, Part::Links).is_empty());
    }

    #[test]
    fn what_differs_from_the_mirror_is_read_again() {
        let mut changed = neighbour();
        changed.permanent = false;
        assert_eq!(parts(Notification::Neighbour(changed)), [Part::Neighbours]);
        let mut changed = fdb();
        changed.destination = None;
        assert_eq!(parts(Notification::Fdb(changed)), [Part::Fdb]);
        let mut changed = route();
        changed.gateway = None;
        assert_eq!(parts(Notification::Route(changed)), [Part::Routes]);
        assert_eq!(parts(Notification::Overflow), Part::ALL);
    }

    #[test]
    fn a_foreign_route_counts_only_in_the_place_of_ours() {
        let mut foreign = route();
        foreign.protocol = 3;
        assert_eq!(parts(Notification::Route(foreign.clone())), [Part::Routes]);
        foreign.destination = "203.0.113.0/24".parse().unwrap();
        assert_eq!(parts(Notification::Route(foreign.clone())), []);
        assert_eq!(parts(Notification::RouteGone(foreign)), []);
    }

    #[test]
    fn neighbours_that_the_kernel_learns_are_not_ours_to_know() {
        let mut learned = neighbour();
        learned.ip = "192.0.2.77".parse().unwrap();
        learned.permanent = false;
        assert_eq!(parts(Notification::Neighbour(learned.clone())), []);
        assert_eq!(parts(Notification::NeighbourGone(learned)), []);
    }
}
