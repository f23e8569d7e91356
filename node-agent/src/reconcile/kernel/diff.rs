//! What has to be written so that the kernel holds what is desired: pure, one
//! function for each kind of object.

use tweed_core::keyed::{Entry, compare};
use tweed_netlink::{fdb::Fdb, owned, route::Route};

use super::{change::Change, mirror::Mirror, resolved::Resolved};

/// The writes for everything but links, not yet in order.
pub fn diff(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let mut changes = addresses(mirror, desired);
    changes.extend(tables(mirror, desired));
    changes
}

/// The writes for neighbours, FDB and routes: what a packet looks up.
pub fn tables(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let mut changes = neighbours(mirror, desired);
    changes.extend(fdb(mirror, desired));
    changes.extend(routes(mirror, desired));
    changes
}

/// The writes for the VXLAN device's addresses.
pub fn addresses(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let actual = mirror.addresses.iter().filter(|(key, _)| {
        Some(key.device) == desired.device && owned::is_device_address(&key.network)
    });
    compare(actual, desired.addresses.iter().map(|key| (key, ())))
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveAddress(*key)),
            Entry::Second(key, ()) => Some(Change::AddAddress(*key)),
            Entry::Both(..) => None,
        })
        .collect()
}

fn neighbours(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let neighbours = mirror.neighbours.iter();
    let actual = neighbours.filter(|(key, _)| Some(key.device) == desired.device);
    compare(actual, &desired.neighbours)
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveNeighbour(*key)),
            Entry::Both(_, actual, mac) if actual == mac => None,
            Entry::Both(key, _, mac) | Entry::Second(key, mac) => Some(Change::SetNeighbour {
                key: *key,
                mac: *mac,
            }),
        })
        .collect()
}

fn fdb(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let agrees = |entries: &[Fdb], remote| match entries {
        [one] => one.permanent && !one.more && one.destination == Some(remote),
        _ => false,
    };
    let fdb = mirror.fdb.iter();
    let actual = fdb.filter(|(key, _)| Some(key.device) == desired.device);
    compare(actual, &desired.fdb)
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveFdb(*key)),
            Entry::Both(_, entries, remote) if agrees(entries, *remote) => None,
            Entry::Both(key, _, remote) | Entry::Second(key, remote) => Some(Change::SetFdb {
                key: *key,
                remote: *remote,
            }),
        })
        .collect()
}

/// A route to a pod's link is not removed: DEL does that.
fn routes(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    compare(&mirror.routes, &desired.routes)
        .flat_map(|entry| match entry {
            Entry::First(key, _) if desired.kept.contains(key) => Vec::new(),
            Entry::First(_, routes) => routes
                .iter()
                .filter(|route| !mirror.leads_to_a_pod(route))
                .map(|route| Change::RemoveRoute(route.clone()))
                .collect(),
            Entry::Second(_, route) => one_route(&[], route),
            Entry::Both(_, routes, route) => one_route(routes, route),
        })
        .collect()
}

/// The writes that leave `desired` as tweed's only route with its key. One
/// route that differs is replaced: in IPv4 there is one at any moment, in IPv6 none for
/// a moment, and the old one again if the kernel refuses the new one. Of several, which
/// the kernel allows only when a person adds them so, all but the right one are removed;
/// without a right one the first is replaced. In IPv6 the others may be next hops of
/// somebody else, which the kernel shows with the protocol of the first.
fn one_route(actual: &[Route], desired: &Route) -> Vec<Change> {
    match actual {
        [] => vec![Change::AddRoute(desired.clone())],
        several if several.contains(desired) => {
            let others = several.iter().filter(|route| *route != desired);
            others.cloned().map(Change::RemoveRoute).collect()
        }
        [first, others @ ..] => {
            let replace = Change::ReplaceRoute {
                old: first.clone(),
                new: desired.clone(),
            };
            let others = others.iter().cloned().map(Change::RemoveRoute);
            others.chain([replace]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::{IpAddr, Ipv4Addr};

    use ipnetwork::IpNetwork;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use tweed_core::mac::Mac;
    use tweed_netlink::link::Link;
    use tweed_netlink::route::Kind;

    use super::*;
    use crate::reconcile::kernel::change::order;
    use crate::reconcile::kernel::key::{AddressKey, FdbKey, NeighbourKey, route_key};
    use tweed_planner::overlay::desired::RouteKey;
    use tweed_planner::overlay::host::AddressState;

    const DEVICE: u32 = 7;
    const UNDERLAY: u32 = 2;
    const POD: u32 = 9;

    fn ip(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 244, 0, last))
    }

    fn network(last: u8) -> IpNetwork {
        IpNetwork::new(ip(last), 32).unwrap()
    }

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn fdb_of(last: u8) -> FdbKey {
        FdbKey {
            device: DEVICE,
            mac: mac(last),
        }
    }

    fn overlay(last: u8, gateway: u8) -> Route {
        Route {
            out: Some(DEVICE),
            gateway: Some(ip(gateway)),
            onlink: true,
            ..Route::to(network(last), 116)
        }
    }

    fn route() -> impl Strategy<Value = Route> {
        let plain = |last| Route::to(network(last), 116);
        let last = 0u8..6;
        prop_oneof![
            (last.clone(), 0u8..3).prop_map(|(last, gateway)| overlay(last, gateway)),
            (last.clone(), 0u8..3).prop_map(move |(last, gateway)| Route {
                out: Some(UNDERLAY),
                gateway: Some(ip(gateway)),
                ..plain(last)
            }),
            last.clone().prop_map(move |last| Route {
                out: Some(POD),
                source: Some(ip(200)),
                link_scope: true,
                ..plain(last)
            }),
            last.clone().prop_map(move |last| Route {
                kind: Kind::Unreachable,
                ..plain(last)
            }),
            last.prop_map(move |last| Route {
                kind: Kind::Other(6),
                ..plain(last)
            }),
        ]
    }

    fn device() -> impl Strategy<Value = u32> {
        prop_oneof![Just(DEVICE), Just(UNDERLAY)]
    }

    prop_compose! {
        fn mirror()(
            addresses in btree_set((device(), 0u8..5), 0..5),
            routes in vec(route(), 0..8),
            neighbours in vec((device(), 0u8..5, 0u8..3), 0..6),
            fdb in vec((0u8..5, proptest::option::of(0u8..3), any::<bool>()), 0..6),
        ) -> Mirror {
            let pod = Link {
                index: POD,
                name: "tw000000000000".to_owned(),
                group: 116,
                alias: Some("tweed:tweed/c/eth0".to_owned()),
                ..Link::default()
            };
            let other = |index| (index, Link { index, ..Link::default() });
            let mut mirror = Mirror {
                links: [(POD, pod), other(DEVICE), other(UNDERLAY)].into(),
                addresses: addresses
                    .into_iter()
                    .map(|(device, last)| {
                        (AddressKey { device, network: network(last) }, AddressState::Usable)
                    })
                    .collect(),
                neighbours: neighbours
                    .into_iter()
                    .map(|(device, last, hw)| (NeighbourKey { device, ip: ip(last) }, mac(hw)))
                    .collect(),
                ..Mirror::default()
            };
            for route in routes {
                let present = mirror.routes.entry(route_key(&route)).or_default();
                if !present.contains(&route) {
                    present.push(route);
                }
            }
            for (last, remote, permanent) in fdb {
                let entry = Fdb {
                    index: DEVICE,
                    mac: mac(last),
                    destination: remote.map(ip),
                    permanent,
                    more: false,
                };
                mirror.fdb.entry(FdbKey::of(&entry)).or_default().push(entry);
            }
            mirror
        }
    }

    prop_compose! {
        fn desired()(
            addresses in btree_set(0u8..5, 0..3),
            routes in vec(route(), 0..6),
            neighbours in vec((0u8..5, 0u8..3), 0..6),
            fdb in vec((0u8..5, 0u8..3), 0..6),
        ) -> Resolved {
            Resolved {
                device: Some(DEVICE),
                addresses: addresses
                    .into_iter()
                    .map(|last| AddressKey { device: DEVICE, network: network(last) })
                    .collect(),
                neighbours: neighbours
                    .into_iter()
                    .map(|(last, hw)| (NeighbourKey { device: DEVICE, ip: ip(last) }, mac(hw)))
                    .collect(),
                fdb: fdb.into_iter().map(|(last, remote)| (fdb_of(last), ip(remote))).collect(),
                routes: routes.into_iter().map(|route| (route_key(&route), route)).collect(),
                kept: BTreeSet::new(),
            }
        }
    }

    /// Writes with the kernel's own rule: a route is added only where there is
    /// none with its key.
    fn write(mirror: &mut Mirror, mut changes: Vec<Change>) {
        order(&mut changes);
        for change in changes {
            if let Change::AddRoute(route) = &change {
                assert!(mirror.routes_with(&route_key(route)).is_empty(), "{route}");
            }
            mirror.apply(&change);
        }
    }

    fn cluster_routes(mirror: &Mirror) -> BTreeMap<RouteKey, Vec<Route>> {
        let mut routes = mirror.routes.clone();
        routes.retain(|_, routes| {
            routes.retain(|route| route.out != Some(POD));
            !routes.is_empty()
        });
        routes
    }

    proptest! {
        #[test]
        fn writing_the_difference_gives_what_is_desired(before in mirror(), desired in desired()) {
            let mut after = before.clone();
            write(&mut after, diff(&before, &desired));

            prop_assert_eq!(diff(&after, &desired), vec![], "a second comparison finds nothing to do");
            for (key, route) in &desired.routes {
                prop_assert_eq!(after.routes_with(key), std::slice::from_ref(route));
            }
            for (key, routes) in &after.routes {
                prop_assert!(
                    desired.routes.contains_key(key)
                        || routes.iter().all(|route| route.out == Some(POD))
                );
            }
            let on_device = |key: &NeighbourKey| key.device == DEVICE;
            let neighbours: BTreeMap<_, _> = after.neighbours.iter()
                .filter(|(key, _)| on_device(key)).map(|(key, mac)| (*key, *mac)).collect();
            prop_assert_eq!(neighbours, desired.neighbours);
            let fdb: BTreeMap<_, _> = after.fdb.iter()
                .map(|(key, entries)| (*key, entries[0].destination.unwrap())).collect();
            prop_assert_eq!(fdb, desired.fdb);
        }

        #[test]
        fn what_is_not_ours_stays(before in mirror(), desired in desired()) {
            let mut after = before.clone();
            write(&mut after, diff(&before, &desired));
            for (key, mac) in before.neighbours.iter().filter(|(key, _)| key.device != DEVICE) {
                prop_assert_eq!(after.neighbours.get(key), Some(mac));
            }
            for key in before.addresses.keys().filter(|key| key.device != DEVICE) {
                prop_assert!(after.addresses.contains_key(key));
            }
            for route in before.routes.values().flatten() {
                let pod = route.out == Some(POD);
                let named = desired.routes.contains_key(&route_key(route));
                let there = after.routes_with(&route_key(route)).contains(route);
                prop_assert!(!pod || named || there);
            }
        }

        #[test]
        fn the_state_before_never_matters(
            before in mirror(), between in desired(), desired in desired(),
        ) {
            let mut direct = before.clone();
            write(&mut direct, diff(&before, &desired));
            let mut around = before.clone();
            write(&mut around, diff(&before, &between));
            let rest = diff(&around, &desired);
            write(&mut around, rest);
            prop_assert_eq!(cluster_routes(&direct), cluster_routes(&around));
            prop_assert_eq!(direct.fdb, around.fdb);
            prop_assert_eq!(direct.neighbours, around.neighbours);
        }
    }

    /// The links are read before the routes: that of a pod may have come between.
    #[test]
    fn a_route_to_a_link_that_was_not_seen_yet_stays() {
        let route = Route {
            out: Some(POD),
            ..Route::to(network(5), 116)
        };
        let mut mirror = Mirror::default();
        mirror.routes.insert(route_key(&route), vec![route.clone()]);
        assert_eq!(diff(&mirror, &Resolved::default()), []);
        let other = Link {
            index: POD,
            ..Link::default()
        };
        mirror.links.insert(POD, other);
        let removed = vec![Change::RemoveRoute(route)];
        assert_eq!(diff(&mirror, &Resolved::default()), removed);
    }

    #[test]
    fn one_node_more_of_many_is_three_writes_in_the_order_of_a_packets_needs() {
        let add = |desired: &mut Resolved, n: u8| {
            let route = overlay(n, n);
            desired.routes.insert(route_key(&route), route);
            let key = NeighbourKey {
                device: DEVICE,
                ip: ip(n),
            };
            desired.neighbours.insert(key, mac(n));
            desired.fdb.insert(fdb_of(n), ip(100));
        };
        let mut desired = Resolved {
            device: Some(DEVICE),
            ..Resolved::default()
        };
        for n in 0..50 {
            add(&mut desired, n);
        }
        let mut mirror = Mirror::default();
        let first = diff(&mirror, &desired);
        write(&mut mirror, first);
        add(&mut desired, 50);
        let mut changes = diff(&mirror, &desired);
        order(&mut changes);
        assert!(matches!(
            changes[..],
            [
                Change::SetNeighbour { .. },
                Change::SetFdb { .. },
                Change::AddRoute(_)
            ]
        ));
    }
}
