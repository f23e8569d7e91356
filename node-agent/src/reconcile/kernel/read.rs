//! Reading the kernel into the mirror: one dump for each part, or what is on one link.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use tweed_core::keyed::{self, Keyed};
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Error, Socket, address, fdb, link, neighbour, owned};

use super::key::{AddressKey, FdbKey, NeighbourKey, route_key};
use super::mirror::{CONNECTED_PROTOCOLS, Mirror, MirrorPart, OnLink, address_state, connected};
use tweed_planner::overlay::desired::ROUTE_PROTOCOL;

/// Reads `part` of the kernel into `mirror`, and says whether anything differs from
/// what was there that the overlay's plan is compared with.
///
/// # Errors
/// When the kernel cannot be read, or every attempt at the dump was
/// interrupted: then the part is as it was before.
pub fn read(socket: &mut Socket, mirror: &mut Mirror, part: MirrorPart) -> Result<bool, Error> {
    Ok(match part {
        MirrorPart::Links => {
            let links = link::list(socket)?;
            mirror.set_links(links.into_iter().map(|link| (link.index, link)).collect())
        }
        MirrorPart::Addresses => {
            let addresses = address::list(socket)?
                .iter()
                .map(|address| (AddressKey::of(address), address_state(address)))
                .collect();
            let before = mem::replace(&mut mirror.addresses, addresses);
            differs_on_overlay(mirror, &before, &mirror.addresses, |key| key.device)
        }
        MirrorPart::Connected => {
            let mut found = BTreeSet::new();
            for protocol in CONNECTED_PROTOCOLS {
                let routes = route::list(socket, Some(protocol))?;
                found.extend(routes.iter().filter_map(connected));
            }
            let before = mem::replace(&mut mirror.connected, found);
            differs_on_overlay(mirror, &before, &mirror.connected, |route| route.interface)
        }
        MirrorPart::Routes => {
            let routes = route::list(socket, Some(ROUTE_PROTOCOL))?;
            mirror.set_routes(routes)
        }
        MirrorPart::ForeignRoutes => {
            let takes = |route: &Route| route.protocol != ROUTE_PROTOCOL && mirror.can_take(route);
            let foreign = if mirror.routes.is_empty() {
                Vec::new()
            } else {
                route::find(socket, None, takes)?
            };
            mirror.set_foreign(foreign)
        }
        MirrorPart::Neighbours => {
            let neighbours = neighbour::list_all(socket)?
                .into_iter()
                .filter(|neighbour| neighbour.permanent)
                .filter_map(|one| Some((NeighbourKey::of(&one), one.mac?)))
                .collect();
            let before = mem::replace(&mut mirror.neighbours, neighbours);
            differs_on_overlay(mirror, &before, &mirror.neighbours, |key| key.device)
        }
        MirrorPart::Fdb => {
            let devices = mirror.links.values().filter(|link| mirror.is_device(link));
            let mut fdb = BTreeMap::<_, Vec<_>>::new();
            for device in devices {
                let entries = match fdb::list(socket, device.index) {
                    // Deleted since the links were read; the notification will
                    // be read next.
                    Err(error) if error.is_absent() => Vec::new(),
                    other => other?,
                };
                for entry in entries {
                    let same = fdb.entry(FdbKey::of(&entry)).or_default();
                    same.reserve_exact(1);
                    same.push(entry);
                }
            }
            mem::replace(&mut mirror.fdb, fdb) != mirror.fdb
        }
    })
}

/// Reads the link with this index, and what is on it, into `mirror`. Says whether anything
/// differs that the overlay's plan is compared with.
///
/// # Errors
/// As [`read`]: then the link is as it was before.
pub fn read_link(socket: &mut Socket, mirror: &mut Mirror, index: u32) -> Result<bool, Error> {
    let Some(link) = link::by_index(socket, index)? else {
        return Ok(mirror.set_link(index, OnLink::default()));
    };
    let addresses = address::of_link(socket, index)?;
    let all_routes = route::main_of_link(socket, index)?;
    let neighbours = neighbour::list(socket, index)?.into_iter();
    let ours = all_routes.iter().filter(|route| owned::is_route(route));
    let mut routes: Vec<Route> = ours.cloned().collect();
    routes.sort_by_key(route_key);
    let read = OnLink {
        link: Some(link),
        addresses: (addresses.iter())
            .map(|address| (AddressKey::of(address), address_state(address)))
            .collect(),
        routes,
        connected: all_routes.iter().filter_map(connected).collect(),
        neighbours: (neighbours.filter(|neighbour| neighbour.permanent))
            .filter_map(|one| Some((NeighbourKey::of(&one), one.mac?)))
            .collect(),
    };
    Ok(mirror.set_link(index, read))
}

/// Whether the two differ on a link that the overlay's plan is compared with.
fn differs_on_overlay<M: Keyed>(
    mirror: &Mirror,
    before: &M,
    after: &M,
    link_of: impl Fn(&M::Key) -> u32,
) -> bool {
    let changed = keyed::diff(before, after);
    let keys = changed.removed.keys().chain(changed.added.keys());
    mirror.has_overlay_on(&keys.map(link_of).collect())
}
