//! What is written makes the kernel hold what is desired, and nothing else of tweed.

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

/// A device of an earlier VNI.
#[test]
fn a_device_is_needed_while_something_desired_is_on_it_alone() {
    const OLD: u32 = 8;
    let route = overlay(1, 1);
    let old = Route {
        out: Some(OLD),
        ..route.clone()
    };
    let on = |device| AddressKey {
        device,
        network: network(0),
    };
    let desired = Resolved {
        device: Some(DEVICE),
        addresses: [on(DEVICE)].into(),
        routes: [(route_key(&route), route)].into(),
        ..Resolved::default()
    };
    let mut mirror = Mirror::default();
    assert!(!is_needed(&mirror, &desired, OLD));
    mirror.apply(&Change::AddAddress(on(OLD)));
    assert!(
        is_needed(&mirror, &desired, OLD),
        "the address is only there"
    );
    mirror.apply(&Change::AddAddress(on(DEVICE)));
    assert!(!is_needed(&mirror, &desired, OLD));
    mirror.apply(&Change::AddRoute(old.clone()));
    assert!(
        is_needed(&mirror, &desired, OLD),
        "its route was not replaced"
    );
    assert!(
        !is_needed(&mirror, &Resolved::default(), OLD),
        "nobody wants it"
    );
}
