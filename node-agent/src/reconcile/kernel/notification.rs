//! What a notification means: which parts of the mirror have to be read again.
//!
//! A notification is never believed, for by now the kernel may hold something
//! else. It is compared with the mirror: one that says what the mirror has
//! comes from tweed's own write, or was read already, and nothing is read
//! again.

use std::collections::BTreeSet;

use tweed_netlink::route::{self, Route};
use tweed_netlink::{Notification, fdb::Fdb, link::Link, owned};

use super::key::{AddressKey, FdbKey, NeighbourKey, route_key, taken_key};
use super::mirror::MirrorPart::{
    self, Addresses, Connected, ForeignRoutes, Links, Neighbours, Routes,
};
use super::mirror::{Mirror, address_state, connected};

/// The parts of `mirror` that are stale after `notification`.
pub fn stale_parts(mirror: &Mirror, notification: &Notification) -> BTreeSet<MirrorPart> {
    let parts: &[MirrorPart] = match notification {
        Notification::Overflow => &MirrorPart::COMPARED,
        Notification::Link(link) => link_parts(mirror, link),
        Notification::LinkRemoved(link) if mirror.links.contains_key(&link.index) => {
            &MirrorPart::COMPARED
        }
        Notification::Address(address)
            if mirror.addresses.get(&AddressKey::of(address)) != Some(&address_state(address)) =>
        {
            &[Addresses, Connected]
        }
        // With an address the kernel removes the routes that have it as their
        // source, and with a device's last one all its routes and neighbours,
        // without any notification of these.
        Notification::AddressRemoved(address)
            if mirror.addresses.contains_key(&AddressKey::of(address)) =>
        {
            &[Addresses, Connected, Routes, Neighbours]
        }
        Notification::Route(route) => route_parts(mirror, route),
        Notification::RouteRemoved(route) => route_gone_parts(mirror, route),
        Notification::Neighbour(neighbour) => {
            let known = mirror.neighbours.get(&NeighbourKey::of(neighbour));
            match known.copied() == neighbour.mac.filter(|_| neighbour.permanent) {
                true => &[],
                false => &[Neighbours],
            }
        }
        Notification::NeighbourRemoved(neighbour)
            if mirror.neighbours.contains_key(&NeighbourKey::of(neighbour)) =>
        {
            &[Neighbours]
        }
        Notification::Fdb(entry) if is_on_device(mirror, entry) && !has_entry(mirror, entry) => {
            &[MirrorPart::Fdb]
        }
        Notification::FdbRemoved(entry) if has_entry(mirror, entry) => &[MirrorPart::Fdb],
        Notification::LinkRemoved(_)
        | Notification::Address(_)
        | Notification::AddressRemoved(_)
        | Notification::NeighbourRemoved(_)
        | Notification::Fdb(_)
        | Notification::FdbRemoved(_) => &[],
    };
    parts.iter().copied().collect()
}

/// Whether the entry is, or may be, on a VXLAN device of tweed.
fn is_on_device(mirror: &Mirror, entry: &Fdb) -> bool {
    let link = mirror.links.get(&entry.index);
    link.is_none_or(|link| mirror.is_device(link))
}

fn has_entry(mirror: &Mirror, entry: &Fdb) -> bool {
    let entries = mirror.fdb.get(&FdbKey::of(entry));
    entries.is_some_and(|entries| entries.contains(entry))
}

/// When a link goes down, the kernel removes its routes, neighbours and IPv6
/// addresses without notification. The link may be up again by the time that it
/// is read, so only this notification says that it was down.
fn link_parts(mirror: &Mirror, link: &Link) -> &'static [MirrorPart] {
    match mirror.links.get(&link.index) {
        Some(known) if known.up && !link.up => &MirrorPart::COMPARED,
        Some(known) if known == link => &[],
        _ => &[Links],
    }
}

/// The parts that may have lost objects without notification if reading `part`
/// turned `before` into `after`.
pub fn losses(before: &Mirror, after: &Mirror, part: MirrorPart) -> &'static [MirrorPart] {
    let is_up = |index| after.links.get(index).is_some_and(|link| link.up);
    let mut links = before.links.iter();
    let mut addresses = before.addresses.keys();
    match part {
        Links if links.any(|(index, link)| link.up && !is_up(index)) => {
            &[Addresses, Connected, Routes, Neighbours, MirrorPart::Fdb]
        }
        Addresses if addresses.any(|key| !after.addresses.contains_key(key)) => {
            &[Connected, Routes, Neighbours]
        }
        _ => &[],
    }
}

/// When a route replaces another, the notification names the new one only. So a
/// route of anybody that has the key of one of tweed's may have replaced it, or stands
/// beside it.
fn route_parts(mirror: &Mirror, route: &Route) -> &'static [MirrorPart] {
    if route.table != route::MAIN_TABLE {
        return &[];
    }
    if let Some(connected) = connected(route) {
        return match mirror.connected.contains(&connected) {
            true => &[],
            false => &[Connected],
        };
    }
    match owned::is_route(route) {
        true if mirror.routes_with(&route_key(route)).contains(route) => &[],
        true => &[Routes],
        false if mirror.routes_with(&taken_key(route)).is_empty() => &[],
        false => &[Routes, ForeignRoutes],
    }
}

fn route_gone_parts(mirror: &Mirror, route: &Route) -> &'static [MirrorPart] {
    let key = route_key(route);
    let is_ours = owned::is_route(route) && mirror.routes_with(&key).contains(route);
    if is_ours {
        return &[Routes];
    }
    if route.table == route::MAIN_TABLE && mirror.has_beside(&taken_key(route)) {
        return &[Routes, ForeignRoutes];
    }
    match connected(route) {
        Some(connected) if mirror.connected.contains(&connected) => &[Connected],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::mac::Mac;
    use tweed_netlink::address::Address;
    use tweed_netlink::link::Vxlan;
    use tweed_netlink::neighbour::Neighbour;

    use super::*;
    use crate::reconcile::kernel::change::Change;
    use crate::reconcile::kernel::key::FdbKey;

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
            mac: Some(Mac([2, 0, 0, 0, 0, 2])),
            permanent: true,
        }
    }

    fn fdb() -> Fdb {
        Fdb {
            index: DEVICE,
            mac: Mac([2, 0, 0, 0, 0, 2]),
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
            temporary: false,
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
                    mac: fdb().mac,
                },
                remote: "192.0.2.2".parse().unwrap(),
            },
        ] {
            mirror.apply(&change);
        }
        mirror
    }

    fn parts(notification: Notification) -> Vec<MirrorPart> {
        stale_parts(&mirror(), &notification).into_iter().collect()
    }

    #[test]
    fn notifications_of_own_writes_cost_nothing() {
        for notification in [
            Notification::Link(Box::new(link())),
            Notification::Address(address()),
            Notification::Route(route()),
            Notification::Neighbour(neighbour()),
            Notification::Fdb(fdb()),
        ] {
            assert_eq!(
                stale_parts(&mirror(), &notification),
                BTreeSet::new(),
                "{notification:?}"
            );
        }
    }

    #[test]
    fn what_is_gone_is_read_again() {
        assert_eq!(
            parts(Notification::RouteRemoved(route())),
            [MirrorPart::Routes]
        );
        assert_eq!(
            parts(Notification::NeighbourRemoved(neighbour())),
            [MirrorPart::Neighbours]
        );
        assert_eq!(parts(Notification::FdbRemoved(fdb())), [MirrorPart::Fdb]);
        assert_eq!(
            parts(Notification::LinkRemoved(Box::new(link()))),
            MirrorPart::COMPARED
        );
        let gone = parts(Notification::AddressRemoved(address()));
        assert!(gone.contains(&MirrorPart::Routes) && gone.contains(&MirrorPart::Neighbours));
    }

    #[test]
    fn a_device_that_went_down_lost_its_routes_even_if_it_is_up_again() {
        let down = Link {
            up: false,
            ..link()
        };
        let stale = parts(Notification::Link(Box::new(down)));
        assert_eq!(stale, MirrorPart::COMPARED);
        let smaller = Link {
            mtu: 1000,
            ..link()
        };
        assert_eq!(
            parts(Notification::Link(Box::new(smaller))),
            [MirrorPart::Links]
        );
    }

    #[test]
    fn a_loss_that_is_read_before_its_notification_counts_as_much() {
        let before = mirror();
        let mut after = before.clone();
        after.addresses.clear();
        assert!(losses(&before, &after, MirrorPart::Addresses).contains(&MirrorPart::Routes));
        assert!(losses(&before, &before, MirrorPart::Addresses).is_empty());
        let mut down = link();
        down.up = false;
        after.links = [(DEVICE, down)].into();
        assert!(losses(&before, &after, MirrorPart::Links).contains(&MirrorPart::Fdb));
        assert!(losses(&after, &before, MirrorPart::Links).is_empty());
    }

    #[test]
    fn what_differs_from_the_mirror_is_read_again() {
        let mut changed = neighbour();
        changed.permanent = false;
        assert_eq!(
            parts(Notification::Neighbour(changed)),
            [MirrorPart::Neighbours]
        );
        let mut changed = fdb();
        changed.destination = None;
        assert_eq!(parts(Notification::Fdb(changed)), [MirrorPart::Fdb]);
        let mut changed = route();
        changed.gateway = None;
        assert_eq!(parts(Notification::Route(changed)), [MirrorPart::Routes]);
        assert_eq!(parts(Notification::Overflow), MirrorPart::COMPARED);
    }

    #[test]
    fn a_foreign_route_counts_only_in_the_place_of_ours() {
        let mut foreign = route();
        foreign.protocol = 3;
        assert_eq!(
            parts(Notification::Route(foreign.clone())),
            [MirrorPart::Routes, MirrorPart::ForeignRoutes]
        );
        foreign.destination = "203.0.113.0/24".parse().unwrap();
        assert_eq!(parts(Notification::Route(foreign.clone())), []);
        assert_eq!(parts(Notification::RouteRemoved(foreign)), []);
    }

    #[test]
    fn a_foreign_route_beside_ours_is_looked_for_when_it_goes() {
        let mut mirror = mirror();
        let beside = Route {
            protocol: 3,
            ..route()
        };
        mirror.set_foreign(vec![beside.clone()]);
        let gone = Notification::RouteRemoved(beside);
        let both = [MirrorPart::Routes, MirrorPart::ForeignRoutes].into();
        assert_eq!(stale_parts(&mirror, &gone), both);
    }

    /// The whole main table may have hundreds of thousands of routes.
    #[test]
    fn pods_and_nodes_that_come_and_go_have_no_routes_of_others_read() {
        let down = Link {
            up: false,
            ..link()
        };
        for notification in [
            Notification::Overflow,
            Notification::Link(Box::new(down.clone())),
            Notification::LinkRemoved(Box::new(link())),
            Notification::AddressRemoved(address()),
            Notification::RouteRemoved(route()),
        ] {
            let stale = parts(notification);
            assert!(stale.contains(&MirrorPart::Routes), "{stale:?}");
            assert!(!stale.contains(&MirrorPart::ForeignRoutes), "{stale:?}");
        }
        let before = mirror();
        for part in [MirrorPart::Links, MirrorPart::Addresses] {
            let lost = losses(&before, &Mirror::default(), part);
            assert!(lost.contains(&MirrorPart::Routes), "{lost:?}");
            assert!(!lost.contains(&MirrorPart::ForeignRoutes), "{lost:?}");
        }
    }

    #[test]
    fn neighbours_that_the_kernel_learns_are_left_out() {
        let mut learned = neighbour();
        learned.ip = "192.0.2.77".parse().unwrap();
        learned.permanent = false;
        assert_eq!(parts(Notification::Neighbour(learned.clone())), []);
        assert_eq!(parts(Notification::NeighbourRemoved(learned)), []);
    }
}
