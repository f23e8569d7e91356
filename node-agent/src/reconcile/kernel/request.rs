//! A change as a message to the kernel.

use tweed_netlink::route::{self, Route, Sequence};
use tweed_netlink::{Request, address, fdb, leaving, link, neighbour};

use super::{change::Change, mirror::Mirror};

/// The messages that make `change`; `mirror` gives names for errors.
pub fn requests(mirror: &Mirror, change: &Change) -> Sequence {
    match change {
        Change::ReplaceRoute { old, new } => {
            let Sequence { first, then, undo } = route::replace(old, new);
            let with_names = first.into_iter().map(|one| named(mirror, new, one));
            Sequence {
                first: with_names.collect(),
                then: then.map(|one| named(mirror, old, one)),
                undo: undo.map(|one| named(mirror, old, one)),
            }
        }
        Change::RemoveLeavingLinks { group, links } => {
            let with_names = links.iter().map(|index| (*index, mirror.link_name(*index)));
            Sequence {
                first: leaving::delete_in_group(*group, with_names),
                ..Sequence::default()
            }
        }
        change => Sequence {
            first: request(mirror, change).into_iter().collect(),
            ..Sequence::default()
        },
    }
}

fn request(mirror: &Mirror, change: &Change) -> Option<Request> {
    let name = |index: u32| mirror.link_name(index);
    let link = |index: &u32| link::Change::of(*index, name(*index));
    Some(match change {
        Change::SetLink {
            index,
            up,
            mtu,
            mac,
        } => {
            let mut request = link(index);
            if let Some(mac) = mac {
                request = request.mac(*mac);
            }
            if let Some(mtu) = mtu {
                request = request.mtu(*mtu);
            }
            if *up {
                request = request.up();
            }
            request.request()
        }
        Change::SetLinkGroup { index, group } => link(index).group(*group).request(),
        Change::RenameLink { index, name: new } => link(index).rename(new).request(),
        Change::ReleaseLink { index } => link(index).without_master().request(),
        Change::GiveCarrier { index } => link(index).proto_up().request(),
        Change::RemoveLink { index } => link::delete(*index, name(*index)),
        Change::AddAddress(key) => address::add(key.device, name(key.device), key.network),
        Change::RemoveAddress(key) => address::delete(key.device, name(key.device), key.network),
        Change::AddRoute(route) => named(mirror, route, route::add(route)),
        // Several requests each.
        Change::ReplaceRoute { .. } | Change::RemoveLeavingLinks { .. } => return None,
        Change::RemoveRoute(route) => named(mirror, route, route::delete(route)),
        Change::SetNeighbour { key, mac } => {
            neighbour::set(key.device, name(key.device), key.ip, *mac)
        }
        Change::RemoveNeighbour(key) => neighbour::delete(key.device, name(key.device), key.ip),
        Change::SetFdb { key, remote } => fdb::set(key.device, name(key.device), key.mac, *remote),
        Change::RemoveFdb(key) => fdb::delete(key.device, name(key.device), key.mac),
    })
}

/// The same request, with the name of the route's link in error messages: the
/// route itself has only its index.
fn named(mirror: &Mirror, route: &Route, mut request: Request) -> Request {
    if let Some(index) = route.out {
        let without = Route {
            out: None,
            ..route.clone()
        };
        request.object = format!("{without} dev {}", mirror.link_name(index));
    }
    request
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::Link;

    use super::*;

    #[test]
    fn a_routes_link_is_named_in_messages() {
        let link = Link {
            index: 7,
            name: "tweed.1".to_owned(),
            ..Link::default()
        };
        let mirror = Mirror {
            links: [(7, link)].into(),
            ..Mirror::default()
        };
        let route = Route {
            gateway: Some("10.244.2.0".parse().unwrap()),
            out: Some(7),
            ..Route::to("10.244.2.0/24".parse().unwrap(), 116)
        };
        let expected = "10.244.2.0/24 via 10.244.2.0 dev tweed.1";
        let changes = [
            Change::AddRoute(route.clone()),
            Change::RemoveRoute(route.clone()),
            Change::ReplaceRoute {
                old: Box::new(route.clone()),
                new: route,
            },
        ];
        for change in changes {
            let Sequence { first, then, undo } = requests(&mirror, &change);
            for request in first.into_iter().chain(then).chain(undo) {
                assert_eq!(request.object, expected);
            }
        }
    }
}
