use tweed_netlink::link::Vxlan;

use super::*;

#[test]
fn the_objects_of_a_link_that_is_gone_are_removed_with_it() {
    let link = |index| Link {
        index,
        ..Link::default()
    };
    let address = |device| AddressKey {
        device,
        network: "192.0.2.1/24".parse().unwrap(),
    };
    let mut mirror = Mirror::default();
    mirror.set_links([(1, link(1)), (2, link(2))].into());
    for device in [1, 2] {
        let usable = AddressState::Usable;
        mirror.addresses.insert(address(device), usable);
        mirror.apply(&Change::AddRoute(Route {
            out: Some(device),
            ..Route::to("10.0.0.0/8".parse().unwrap(), 116)
        }));
    }
    mirror.set_links([(2, link(2))].into());
    assert_eq!(mirror.addresses.keys().collect::<Vec<_>>(), [&address(2)]);
    let routes: Vec<_> = mirror.routes.values().flatten().collect();
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].out, Some(2));
}

fn via(destination: &str, gateway: &str) -> Route {
    Route {
        gateway: Some(gateway.parse().unwrap()),
        ..Route::to(destination.parse().unwrap(), 116)
    }
}

/// The kernel shows the next hops of an IPv6 route with the protocol of the first.
#[test]
fn a_next_hop_that_the_kernel_does_not_delete_as_ours_is_somebody_elses() {
    let [ours, other] = ["fd00::", "2001:db8::9"].map(|gateway| via("fd00::/64", gateway));
    let key = route_key(&ours);
    let mut mirror = Mirror::default();
    assert!(mirror.set_routes(vec![ours.clone(), other.clone()]));
    assert_eq!(mirror.routes_with(&key).len(), 2);
    mirror.disown(&other);
    assert!(!mirror.set_routes(vec![ours.clone(), other.clone()]));
    assert_eq!(mirror.routes_with(&key), std::slice::from_ref(&ours));
    assert_eq!(mirror.beside()[&key].len(), 1);
    assert!(mirror.set_routes(vec![ours]), "it is gone");
    assert!(mirror.beside().is_empty());
}

/// Others change routes without a notification that is read, so each dump is compared.
#[test]
fn a_dump_with_as_many_routes_as_are_known_may_have_others() {
    let [ours, changed] = ["10.244.2.0", "192.0.2.2"].map(|gateway| via("10.244.2.0/24", gateway));
    let elsewhere = Route::to("10.244.3.0/24".parse().unwrap(), 116);
    let mut mirror = Mirror::default();
    mirror.set_routes(vec![ours.clone()]);
    for other in [changed, elsewhere] {
        assert!(mirror.set_routes(vec![other.clone()]));
        assert!(!mirror.set_routes(vec![other.clone()]));
        assert_eq!(mirror.routes_with(&route_key(&other)), [other]);
    }
    assert!(mirror.routes_with(&route_key(&ours)).is_empty());
}

#[test]
fn routes_of_others_stay_known_while_only_ours_are_read() {
    let ours = Route::to("10.244.2.0/24".parse().unwrap(), 116);
    let foreign = Route {
        protocol: 3,
        ..ours.clone()
    };
    let mut mirror = Mirror::default();
    mirror.set_routes(vec![ours.clone()]);
    assert!(mirror.set_foreign(vec![foreign.clone()]));
    assert!(!mirror.set_routes(vec![ours.clone()]));
    assert!(!mirror.set_foreign(vec![foreign.clone()]));
    assert_eq!(mirror.beside()[&route_key(&ours)], [&foreign]);
    assert!(mirror.set_foreign(Vec::new()));
    assert!(mirror.beside().is_empty());
}

#[test]
fn leaving_links_are_deleted_at_once_and_not_those_of_others_in_their_group() {
    let link = |index, name: &str, group| Link {
        index,
        name: name.to_owned(),
        group,
        alias: Some("tweed:tweed/c/eth0".to_owned()),
        ..Link::default()
    };
    let mut mirror = Mirror::default();
    let pod = (2, link(2, "tw001122334455", 116));
    let leaving = [3, 4].map(|index| (index, link(index, "twx01122334455", 117)));
    mirror.set_links(leaving.iter().cloned().chain([pod]).collect());
    let links = vec![3, 4];
    let group = 0x7400_0009;
    let all = vec![Change::RemoveLeavingLinks { group, links }];
    assert_eq!(mirror.delete_leaving_links(|| 9), all);
    mirror.links.insert(5, link(5, "foreign", 117));
    assert_eq!(mirror.delete_leaving_links(|| 9), all);
    for change in all {
        mirror.apply(&change);
    }
    assert_eq!(mirror.links.keys().collect::<Vec<_>>(), [&2, &5]);
}

fn link(index: u32, name: &str, group: u32) -> Link {
    Link {
        index,
        name: name.to_owned(),
        group,
        ..Link::default()
    }
}

/// A mirror with the device, the own link with a direct route, a pod and a link of others.
fn of_a_node() -> Mirror {
    let mut mirror = Mirror::default();
    let device = Link {
        vxlan: Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap())),
        ..link(7, "tweed.1", 0)
    };
    let links = [
        link(2, "eth0", 0),
        device,
        link(9, POD, 116),
        link(11, "veth", 0),
    ];
    mirror.set_links(links.map(|link| (link.index, link)).into());
    for (network, out) in [
        ("10.244.2.0/24", 7),
        ("10.244.3.0/24", 2),
        ("10.244.1.5/32", 9),
    ] {
        mirror.apply(&Change::AddRoute(Route {
            out: Some(out),
            ..Route::to(network.parse().unwrap(), 116)
        }));
    }
    mirror
}

const POD: &str = "tw001122334455";

/// Whether the overlay has to be compared again if this is all that is on a link.
fn concerns_overlay(index: u32, new: Link) -> bool {
    let mut mirror = of_a_node();
    let mut links = mirror.links.clone();
    links.insert(index, new.clone());
    let by_all = mirror.set_links(links);
    let mut mirror = of_a_node();
    let routes = mirror.routes.values().flatten();
    let on_link = routes.filter(|route| route.out == Some(index));
    let read = OnLink {
        link: Some(new),
        routes: on_link.cloned().collect(),
        ..OnLink::default()
    };
    assert_eq!(mirror.set_link(index, read), by_all);
    by_all
}

#[test]
fn the_overlay_is_compared_again_only_with_links_that_it_uses() {
    let up = |link: Link| Link { up: true, ..link };
    for (what, index, new) in [
        ("another pod", 12, link(12, "tw665544332211", 116)),
        ("a pod", 9, up(link(9, POD, 116))),
        ("a link of others", 11, up(link(11, "veth", 0))),
        ("a new one", 12, link(12, "docker0", 0)),
    ] {
        assert!(!concerns_overlay(index, new), "{what}");
    }
    for (what, index, new) in [
        ("the own link", 2, up(link(2, "eth0", 0))),
        ("the device", 7, up(link(7, "tweed.1", 0))),
        ("one in the device's place", 12, link(12, "tweed.5", 0)),
        ("one that becomes a pod's", 2, link(2, POD, 116)),
        ("a pod's that becomes one of others", 9, link(9, "mine", 0)),
    ] {
        assert!(concerns_overlay(index, new), "{what}");
    }
}

#[test]
fn what_is_on_one_link_is_replaced_and_nothing_else() {
    let mut mirror = of_a_node();
    let address = AddressKey {
        device: 9,
        network: "192.0.2.1/24".parse().unwrap(),
    };
    mirror.addresses.insert(address, AddressState::Usable);
    let other = AddressKey {
        device: 2,
        ..address
    };
    mirror.addresses.insert(other, AddressState::Usable);
    let before = mirror.clone();
    let read = OnLink {
        link: Some(link(9, POD, 116)),
        ..OnLink::default()
    };
    assert!(
        !mirror.set_link(9, read.clone()),
        "only a pod's route is gone"
    );
    assert!(
        mirror
            .routes
            .values()
            .flatten()
            .all(|route| route.out != Some(9))
    );
    assert_eq!(mirror.routes.len(), before.routes.len() - 1);
    assert_eq!(mirror.addresses.keys().collect::<Vec<_>>(), [&other]);
    assert!(
        mirror.set_link(2, OnLink::default()),
        "a direct route is gone"
    );
    assert!(!mirror.links.contains_key(&2));
    assert!(mirror.addresses.is_empty());
}

/// A route of the overlay and one of a pod with the same key: one of them has to go.
#[test]
fn a_route_to_a_pod_in_the_overlays_place_concerns_it() {
    let mut mirror = of_a_node();
    let taken = Route {
        out: Some(9),
        ..Route::to("10.244.2.0/24".parse().unwrap(), 116)
    };
    let own = mirror.routes_with(&route_key(&taken)).to_vec();
    let pod = Route {
        out: Some(9),
        ..Route::to("10.244.1.5/32".parse().unwrap(), 116)
    };
    let read = OnLink {
        link: Some(link(9, POD, 116)),
        routes: vec![pod, taken.clone()],
        ..OnLink::default()
    };
    assert!(mirror.set_link(9, read));
    assert_eq!(mirror.routes_with(&route_key(&taken)).len(), own.len() + 1);
}

#[test]
fn a_network_on_a_link_is_known_whoever_has_written_its_route() {
    let on_link = |destination: &str, protocol| Route {
        out: Some(2),
        link_scope: true,
        ..Route::to(destination.parse().unwrap(), protocol)
    };
    let is_connected = |route: &Route| connected(route).is_some();
    let networks = ["192.0.2.0/24", "192.0.2.0/31", "2001:db8::/64"];
    for network in networks {
        for protocol in CONNECTED_PROTOCOLS {
            let known = connected(&on_link(network, protocol)).unwrap();
            assert_eq!(known.by_hand, protocol == route::STATIC_PROTOCOL);
        }
        // `boot`, tweed's own.
        for protocol in [3, 116] {
            assert!(!is_connected(&on_link(network, protocol)));
        }
    }
    // The kernel's route to the other end of a link of two, and one to a pod.
    for host in ["192.0.2.9/32", "2001:db8::9/128"] {
        assert!(is_connected(&on_link(host, route::KERNEL_PROTOCOL)));
        assert!(!is_connected(&on_link(host, route::STATIC_PROTOCOL)));
        assert!(!is_connected(&on_link(host, route::DHCP_PROTOCOL)));
    }
    let whole = on_link("0.0.0.0/0", route::STATIC_PROTOCOL);
    let routed = Route {
        gateway: Some("192.0.2.9".parse().unwrap()),
        ..on_link("198.51.100.0/24", route::DHCP_PROTOCOL)
    };
    let wide_scope = Route {
        link_scope: false,
        ..on_link("192.0.2.0/24", route::STATIC_PROTOCOL)
    };
    let other_table = Route {
        table: 100,
        ..on_link("192.0.2.0/24", route::DHCP_PROTOCOL)
    };
    for route in [whole, routed, wide_scope, other_table] {
        assert!(!is_connected(&route), "{route}");
    }
}
