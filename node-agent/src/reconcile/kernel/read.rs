//! Reading the kernel into the mirror: one dump for each part.

use std::collections::BTreeMap;
use std::mem;

use tweed_netlink::route::{self, Route};
use tweed_netlink::{Error, Socket, address, fdb, link, neighbour};

use super::key::{AddressKey, FdbKey, NeighbourKey, taken_key};
use super::mirror::{Mirror, MirrorPart, address_state, connected};
use tweed_planner::overlay::desired::ROUTE_PROTOCOL;

/// Reads `part` of the kernel into `mirror`, and says whether that differs from
/// what was there.
///
/// # Errors
/// When the kernel cannot be read, or every attempt at the dump was
/// interrupted: then the part is as it was before.
pub fn read(socket: &mut Socket, mirror: &mut Mirror, part: MirrorPart) -> Result<bool, Error> {
    Ok(match part {
        MirrorPart::Links => {
            let links = link::list(socket)?;
            let links = links.into_iter().map(|link| (link.index, link)).collect();
            let differs = mirror.links != links;
            mirror.set_links(links);
            differs
        }
        MirrorPart::Addresses => {
            let addresses = address::list(socket)?
                .iter()
                .map(|address| (AddressKey::of(address), address_state(address)))
                .collect();
            replace(&mut mirror.addresses, addresses)
        }
        MirrorPart::Connected => {
            let connected = route::list(socket, Some(route::KERNEL_PROTOCOL))?
                .iter()
                .filter_map(connected)
                .collect();
            replace(&mut mirror.connected, connected)
        }
        MirrorPart::Routes => {
            let routes = route::list(socket, Some(ROUTE_PROTOCOL))?;
            mirror.set_routes(routes)
        }
        MirrorPart::ForeignRoutes => {
            let is_beside = |route: &Route| {
                route.protocol != ROUTE_PROTOCOL && mirror.routes.contains_key(&taken_key(route))
            };
            let foreign = match mirror.routes.is_empty() {
                true => Vec::new(),
                false => route::find(socket, None, is_beside)?,
            };
            mirror.set_foreign(foreign)
        }
        MirrorPart::Neighbours => {
            let neighbours = neighbour::list_all(socket)?
                .into_iter()
                .filter(|neighbour| neighbour.permanent)
                .filter_map(|one| Some((NeighbourKey::of(&one), one.mac?)))
                .collect();
            replace(&mut mirror.neighbours, neighbours)
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
                    fdb.entry(FdbKey::of(&entry)).or_default().push(entry);
                }
            }
            replace(&mut mirror.fdb, fdb)
        }
    })
}

/// Replaces `place` by `value`, and says whether that differs.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    mem::replace(place, value) != *place
}
