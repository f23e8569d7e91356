//! A change as a message to the kernel.

use tweed_netlink::{Request, address, link, neighbour, route};

use super::change::Change;
use super::state::Mirror;

/// The message that makes `change`; `mirror` gives names for errors.
#[must_use]
pub fn request(mirror: &Mirror, change: &Change) -> Request {
    let name = |index: u32| mirror.link_name(index);
    match change {
        Change::SetLink {
            index,
            up,
            mtu,
            mac,
        } => {
            let mut request = link::Change::of(*index, name(*index));
            if let Some(mac) = mac {
                request = request.mac(mac.0);
            }
            if let Some(mtu) = mtu {
                request = request.mtu(*mtu);
            }
            if *up {
                request = request.up();
            }
            request.request()
        }
        Change::RemoveLink { index } => link::delete(*index, name(*index)),
        Change::AddAddress(key) => address::add(key.device, name(key.device), key.network),
        Change::RemoveAddress(key) => address::delete(key.device, name(key.device), key.network),
        Change::AddRoute(route) => route::add(route),
        Change::ReplaceRoute { new, .. } => route::replace(new),
        Change::RemoveRoute(route) => route::delete(route),
        Change::SetNeighbour { key, mac } => {
            neighbour::set(key.device, name(key.device), key.ip, mac.0)
        }
        Change::RemoveNeighbour(key) => neighbour::delete(key.device, name(key.device), key.ip),
        Change::SetFdb { key, remote } => {
            neighbour::set_fdb(key.device, name(key.device), key.mac.0, *remote)
        }
        Change::RemoveFdb(key) => {
            neighbour::delete_fdb(key.device, name(key.device), key.mac.0, None)
        }
    }
}
