//! Reading the kernel into the mirror: one dump for each part.

use std::collections::BTreeMap;

use tweed_core::mac::Mac;
use tweed_netlink::address::Address;
use tweed_netlink::{Error, Socket, address, link, neighbour, route};

use super::mirror::{AddressKey, Mirror, NeighbourKey, fdb_key, route_key};
use super::notification::{Part, connected};
use tweed_planner::overlay::desired::ROUTE_PROTOCOL;
use tweed_planner::overlay::host::AddressState;

/// Reads `part` of the kernel into `mirror`. Says whether that now says
/// something else.
///
/// # Errors
/// When the kernel cannot be asked, or a dump never came through whole: then
/// the part is as it was before.
pub fn read(socket: &mut Socket, mirror: &mut Mirror, part: Part) -> Result<bool, Error> {
    Ok(match part {
        Part::Links => {
            let links = link::list(socket)?;
            let links = links.into_iter().map(|link| (link.index, link)).collect();
            let differs = mirror.links != links;
            mirror.set_links(links);
            differs
        }
        Part::Addresses => {
            let addresses = address::list(socket)?
                .iter()
                .map(|address| {
                    let key = AddressKey {
                        device: address.index,
                        network: address.network,
                    };
                    (key, address_state(address))
                })
                .collect();
            put(&mut mirror.addresses, addresses)
        }
        Part::Connected => {
            let connected = route::list(socket, Some(route::KERNEL_PROTOCOL))?
                .iter()
                .filter_map(connected)
                .collect();
            put(&mut mirror.connected, connected)
        }
        Part::Routes => {
            let mut routes = BTreeMap::<_, Vec<_>>::new();
            for route in route::list(socket, Some(ROUTE_PROTOCOL))? {
                routes.entry(route_key(&route)).or_default().push(route);
            }
            put(&mut mirror.routes, routes)
        }
        Part::Neighbours => {
            let neighbours = neighbour::list_all(socket)?
                .into_iter()
                .filter(|neighbour| neighbour.permanent)
                .filter_map(|neighbour| {
                    let key = NeighbourKey {
                        device: neighbour.index,
                        ip: neighbour.ip,
                    };
                    Some((key, Mac(neighbour.mac?)))
                })
                .collect();
            put(&mut mirror.neighbours, neighbours)
        }
        Part::Fdb => {
            let devices = mirror.links.values().filter(|link| mirror.is_device(link));
            let mut fdb = BTreeMap::<_, Vec<_>>::new();
            for device in devices {
                let entries = match neighbour::list_fdb(socket, device.index) {
                    // Deleted since the links were read; its notification waits.
                    Err(error) if error.is_absent() => Vec::new(),
                    other => other?,
                };
                for entry in entries {
                    fdb.entry(fdb_key(&entry)).or_default().push(entry);
                }
            }
            put(&mut mirror.fdb, fdb)
        }
    })
}

/// Puts `value` into its place. Says whether another was there.
fn put<T: PartialEq>(place: &mut T, value: T) -> bool {
    let differs = *place != value;
    *place = value;
    differs
}

/// Whether an address can be used.
#[must_use]
pub fn address_state(address: &Address) -> AddressState {
    if address.tentative {
        AddressState::Tentative
    } else if address.passing {
        AddressState::Temporary
    } else {
        AddressState::Usable
    }
}
