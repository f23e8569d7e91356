//! What a notification means: which parts of the mirror have to be read again, or
//! which links with all that is on them.
//!
//! A notification is never believed, for by now the kernel may hold something
//! else. It is compared with the mirror: one that says what the mirror has
//! comes from tweed's own write, or was read already, and nothing is read
//! again.

use tweed_netlink::address::Address;
use tweed_netlink::neighbour::Neighbour;
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Notification, fdb::Fdb, link::Link, owned};

use super::key::{AddressKey, FdbKey, NeighbourKey, route_key, taken_key};
use super::mirror::MirrorPart::{
    self, Addresses, Connected, ForeignRoutes, Links, Neighbours, Routes,
};
use super::mirror::{Mirror, address_state, connected, is_link_local};
use super::stale::Stale;

/// What the kernel may have removed with an address, without notification: the routes
/// that have it as their source, and with a device's last one all its routes and
/// neighbours.
const LOST_WITH_ADDRESS: [MirrorPart; 3] = [Connected, Routes, Neighbours];
/// What it may have removed with a link, or when that went down.
const LOST_WITH_LINK: [MirrorPart; 5] = [Addresses, Connected, Routes, Neighbours, MirrorPart::Fdb];

/// What of `mirror` is stale after `notification`.
pub fn stale(mirror: &Mirror, notification: &Notification) -> Stale {
    match notification {
        Notification::Overflow => MirrorPart::COMPARED.into(),
        Notification::Link(link) => link_changed(mirror, link),
        Notification::LinkRemoved(link) if mirror.links.contains_key(&link.index) => {
            on_link_or(mirror, link.index, MirrorPart::COMPARED)
        }
        Notification::Address(address)
            if mirror.addresses.get(&AddressKey::of(address)) != Some(&address_state(address)) =>
        {
            address_changed(mirror, address, [Addresses, Connected].into())
        }
        Notification::AddressRemoved(address)
            if mirror.addresses.contains_key(&AddressKey::of(address)) =>
        {
            let lost = [Addresses].into_iter().chain(LOST_WITH_ADDRESS);
            address_changed(mirror, address, lost.collect())
        }
        Notification::Route(route) => route_changed(mirror, route),
        Notification::RouteRemoved(route) => route_removed(mirror, route),
        Notification::Neighbour(neighbour) => {
            let known = mirror.neighbours.get(&NeighbourKey::of(neighbour));
            if known.copied() == neighbour.mac.filter(|_| neighbour.permanent) {
                Stale::default()
            } else {
                neighbour_changed(mirror, neighbour)
            }
        }
        Notification::NeighbourRemoved(neighbour)
            if mirror.neighbours.contains_key(&NeighbourKey::of(neighbour)) =>
        {
            neighbour_changed(mirror, neighbour)
        }
        Notification::Fdb(entry) if is_on_device(mirror, entry) && !has_entry(mirror, entry) => {
            [MirrorPart::Fdb].into()
        }
        Notification::FdbRemoved(entry) if has_entry(mirror, entry) => [MirrorPart::Fdb].into(),
        Notification::LinkRemoved(_)
        | Notification::Address(_)
        | Notification::AddressRemoved(_)
        | Notification::NeighbourRemoved(_)
        | Notification::Fdb(_)
        | Notification::FdbRemoved(_) => Stale::default(),
    }
}

/// The link with all that is on it where nothing else can have changed with it, and
/// `parts` for every other link.
fn on_link_or(mirror: &Mirror, index: u32, parts: impl Into<Stale>) -> Stale {
    if mirror.is_apart(index) {
        Stale::link(index)
    } else {
        parts.into()
    }
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
fn link_changed(mirror: &Mirror, link: &Link) -> Stale {
    match mirror.links.get(&link.index) {
        Some(known) if known == link => Stale::default(),
        Some(known) if known.up && !link.up => on_link_or(mirror, link.index, MirrorPart::COMPARED),
        _ if mirror.is_device(link) => [Links].into(),
        _ => on_link_or(mirror, link.index, [Links]),
    }
}

/// No route has a link-local address as its source.
fn address_changed(mirror: &Mirror, address: &Address, parts: Stale) -> Stale {
    if is_link_local(address.network.ip()) {
        on_link_or(mirror, address.index, parts)
    } else {
        parts
    }
}

fn neighbour_changed(mirror: &Mirror, neighbour: &Neighbour) -> Stale {
    on_link_or(mirror, neighbour.index, [Neighbours])
}

/// What may have lost objects without notification if reading `part` turned `before`
/// into `after`.
pub fn losses(before: &Mirror, after: &Mirror, part: MirrorPart) -> Stale {
    let mut lost = Stale::default();
    match part {
        Links => {
            let is_up = |index| after.links.get(index).is_some_and(|link| link.up);
            let links = before.links.iter();
            for (index, _) in links.filter(|(index, link)| link.up && !is_up(index)) {
                match (before.is_apart(*index), after.links.contains_key(index)) {
                    (true, true) => lost.extend(Stale::link(*index)),
                    // All that was on it has left the mirror with it.
                    (true, false) => {}
                    (false, _) => lost.extend(LOST_WITH_LINK.into()),
                }
            }
        }
        Addresses => {
            let takes_along = |key: &&AddressKey| {
                !is_link_local(key.network.ip()) || !before.is_apart(key.device)
            };
            let mut addresses = before.addresses.keys().filter(takes_along);
            if addresses.any(|key| !after.addresses.contains_key(key)) {
                lost.extend(LOST_WITH_ADDRESS.into());
            }
        }
        _ => {}
    }
    lost
}

/// When a route replaces another, the notification names the new one only. So a
/// route of anybody that has the key of one of tweed's may have replaced it, or stands
/// beside it; and one to the destination of a connected route may have replaced that.
fn route_changed(mirror: &Mirror, route: &Route) -> Stale {
    let mut stale = Stale::default();
    if route.table != route::MAIN_TABLE {
        return stale;
    }
    let is_ours = owned::is_route(route);
    let mut known = mirror.connected.iter();
    let has_another = !is_ours && known.any(|known| known.destination == route.destination);
    match connected(route) {
        Some(connected) if mirror.connected.contains(&connected) => {}
        Some(connected) if !has_another => {
            stale.extend(on_link_or(mirror, connected.interface, [Connected]));
        }
        None if !has_another => {}
        _ => stale.extend([Connected].into()),
    }
    if is_ours {
        if !mirror.routes_with(&route_key(route)).contains(route) {
            stale.extend(tweeds_route_changed(mirror, route));
        }
    } else if !mirror.routes_with(&taken_key(route)).is_empty() {
        stale.extend([Routes, ForeignRoutes].into());
    } else if mirror.can_take(route) {
        stale.extend([ForeignRoutes].into());
    }
    stale
}

/// The link of a pod where the route can have replaced none but one of the same link.
fn tweeds_route_changed(mirror: &Mirror, route: &Route) -> Stale {
    let mut others = mirror.routes_with(&route_key(route)).iter();
    match route.out {
        Some(index) if mirror.leads_to_a_pod(route) && others.all(|one| one.out == route.out) => {
            on_link_or(mirror, index, [Routes])
        }
        _ => [Routes].into(),
    }
}

fn route_removed(mirror: &Mirror, route: &Route) -> Stale {
    let mut stale = Stale::default();
    let key = route_key(route);
    if owned::is_route(route) && mirror.routes_with(&key).contains(route) {
        stale.extend(tweeds_route_changed(mirror, route));
    } else if route.table == route::MAIN_TABLE && mirror.has_beside(&taken_key(route)) {
        stale.extend([Routes, ForeignRoutes].into());
    }
    if let Some(connected) = connected(route)
        && mirror.connected.contains(&connected)
    {
        stale.extend(on_link_or(mirror, connected.interface, [Connected]));
    }
    stale
}

#[cfg(test)]
mod tests;
