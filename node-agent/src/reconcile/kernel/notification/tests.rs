//! What each notification costs.

use tweed_core::mac::Mac;
use tweed_netlink::address::Address;
use tweed_netlink::link::Vxlan;
use tweed_netlink::neighbour::Neighbour;

use super::*;
use crate::reconcile::kernel::change::Change;
use crate::reconcile::kernel::key::FdbKey;
use crate::reconcile::kernel::mirror::CONNECTED_PROTOCOLS;
use tweed_planner::overlay::host::AddressState;

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

fn stale_after(notification: Notification) -> Stale {
    stale(&mirror(), &notification)
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
        assert!(
            stale(&mirror(), &notification).is_empty(),
            "{notification:?}"
        );
    }
}

#[test]
fn what_is_gone_is_read_again() {
    assert_eq!(
        stale_after(Notification::RouteRemoved(route())),
        [MirrorPart::Routes].into()
    );
    assert_eq!(
        stale_after(Notification::NeighbourRemoved(neighbour())),
        [MirrorPart::Neighbours].into()
    );
    assert_eq!(
        stale_after(Notification::FdbRemoved(fdb())),
        [MirrorPart::Fdb].into()
    );
    assert_eq!(
        stale_after(Notification::LinkRemoved(Box::new(link()))),
        MirrorPart::COMPARED.into()
    );
    let gone = stale_after(Notification::AddressRemoved(address()));
    assert!(gone.concerns(MirrorPart::Routes) && gone.concerns(MirrorPart::Neighbours));
}

#[test]
fn a_device_that_went_down_lost_its_routes_even_if_it_is_up_again() {
    let down = Link {
        up: false,
        ..link()
    };
    let stale = stale_after(Notification::Link(Box::new(down)));
    assert_eq!(stale, MirrorPart::COMPARED.into());
    let smaller = Link {
        mtu: 1000,
        ..link()
    };
    assert_eq!(
        stale_after(Notification::Link(Box::new(smaller))),
        [MirrorPart::Links].into()
    );
}

#[test]
fn a_loss_that_is_read_before_its_notification_counts_as_much() {
    let before = mirror();
    let mut after = before.clone();
    after.addresses.clear();
    assert!(losses(&before, &after, MirrorPart::Addresses).concerns(MirrorPart::Routes));
    assert!(losses(&before, &before, MirrorPart::Addresses).is_empty());
    let mut down = link();
    down.up = false;
    after.links = [(DEVICE, down)].into();
    assert!(losses(&before, &after, MirrorPart::Links).concerns(MirrorPart::Fdb));
    assert!(losses(&after, &before, MirrorPart::Links).is_empty());
}

#[test]
fn what_differs_from_the_mirror_is_read_again() {
    let mut changed = neighbour();
    changed.permanent = false;
    assert_eq!(
        stale_after(Notification::Neighbour(changed)),
        [MirrorPart::Neighbours].into()
    );
    let mut changed = fdb();
    changed.destination = None;
    assert_eq!(
        stale_after(Notification::Fdb(changed)),
        [MirrorPart::Fdb].into()
    );
    let mut changed = route();
    changed.gateway = None;
    assert_eq!(
        stale_after(Notification::Route(changed)),
        [MirrorPart::Routes].into()
    );
    assert_eq!(
        stale_after(Notification::Overflow),
        MirrorPart::COMPARED.into()
    );
}

#[test]
fn a_foreign_route_counts_only_in_the_place_of_ours() {
    let mut foreign = route();
    foreign.protocol = 3;
    assert_eq!(
        stale_after(Notification::Route(foreign.clone())),
        [MirrorPart::Routes, MirrorPart::ForeignRoutes].into()
    );
    foreign.destination = "203.0.113.0/24".parse().unwrap();
    assert_eq!(stale_after(Notification::Route(foreign.clone())), [].into());
    assert_eq!(stale_after(Notification::RouteRemoved(foreign)), [].into());
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
    assert_eq!(stale(&mirror, &gone), both);
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
        let stale = stale_after(notification);
        assert!(stale.concerns(MirrorPart::Routes), "{stale:?}");
        assert!(!stale.concerns(MirrorPart::ForeignRoutes), "{stale:?}");
    }
    let before = mirror();
    for part in [MirrorPart::Links, MirrorPart::Addresses] {
        let lost = losses(&before, &Mirror::default(), part);
        assert!(lost.concerns(MirrorPart::Routes), "{lost:?}");
        assert!(!lost.concerns(MirrorPart::ForeignRoutes), "{lost:?}");
    }
}

#[test]
fn neighbours_that_the_kernel_learns_are_left_out() {
    let mut learned = neighbour();
    learned.ip = "192.0.2.77".parse().unwrap();
    learned.permanent = false;
    assert_eq!(
        stale_after(Notification::Neighbour(learned.clone())),
        [].into()
    );
    assert_eq!(
        stale_after(Notification::NeighbourRemoved(learned)),
        [].into()
    );
}

/// Index of the link of a pod, and of one of another runtime.
const POD: u32 = 9;
const VETH: u32 = 11;

fn pod_link() -> Link {
    Link {
        index: POD,
        name: "tw001122334455".to_owned(),
        group: 116,
        up: true,
        ..Link::default()
    }
}

fn veth() -> Link {
    Link {
        index: VETH,
        name: "veth11".to_owned(),
        up: true,
        ..Link::default()
    }
}

fn pod_route() -> Route {
    Route {
        out: Some(POD),
        link_scope: true,
        ..Route::to("10.244.1.5/32".parse().unwrap(), 116)
    }
}

fn address_of_veth(network: &str) -> Address {
    Address {
        index: VETH,
        network: network.parse().unwrap(),
        ..address()
    }
}

fn connected_route() -> Route {
    Route {
        out: Some(VETH),
        ..Route::to("fe80::/64".parse().unwrap(), route::KERNEL_PROTOCOL)
    }
}

/// The mirror, with the link of a pod and one of another runtime.
fn mirror_with_links() -> Mirror {
    let mut mirror = mirror();
    for link in [pod_link(), veth()] {
        mirror.links.insert(link.index, link);
    }
    mirror.apply(&Change::AddRoute(pod_route()));
    let pod = pod_neighbour();
    mirror.apply(&Change::SetNeighbour {
        key: NeighbourKey::of(&pod),
        mac: pod.mac.unwrap(),
    });
    let usable = address_state(&address_of_veth("fe80::b/64"));
    let key = AddressKey::of(&address_of_veth("fe80::b/64"));
    mirror.addresses.insert(key, usable);
    mirror.connected.extend(connected(&connected_route()));
    mirror
}

fn pod_neighbour() -> Neighbour {
    Neighbour {
        index: POD,
        ip: "10.244.1.5".parse().unwrap(),
        ..neighbour()
    }
}

fn down(link: Link) -> Link {
    Link { up: false, ..link }
}

#[test]
fn links_of_pods_and_of_others_cost_what_is_on_them() {
    let other_pod = Route {
        destination: "10.244.1.6/32".parse().unwrap(),
        ..pod_route()
    };
    let new = Link {
        index: 12,
        ..veth()
    };
    for (link, notification) in [
        (12, Notification::Link(Box::new(new))),
        (POD, Notification::Link(Box::new(down(pod_link())))),
        (VETH, Notification::Link(Box::new(down(veth())))),
        (POD, Notification::LinkRemoved(Box::new(pod_link()))),
        (VETH, Notification::LinkRemoved(Box::new(veth()))),
        (VETH, Notification::Address(address_of_veth("fe80::c/64"))),
        (
            VETH,
            Notification::AddressRemoved(address_of_veth("fe80::b/64")),
        ),
        (VETH, Notification::RouteRemoved(connected_route())),
        (POD, Notification::Route(other_pod)),
        (POD, Notification::RouteRemoved(pod_route())),
        (POD, Notification::NeighbourRemoved(pod_neighbour())),
    ] {
        let stale = stale(&mirror_with_links(), &notification);
        assert_eq!(stale, Stale::link(link), "{notification:?}");
    }
}

/// With an address the kernel removes the routes of other links that have it as their
/// source.
#[test]
fn a_link_with_an_address_takes_more_along_than_what_is_on_it() {
    let mut mirror = mirror_with_links();
    let key = AddressKey::of(&address_of_veth("198.51.100.1/24"));
    let usable = address_state(&address_of_veth("198.51.100.1/24"));
    mirror.addresses.insert(key, usable);
    for notification in [
        Notification::Link(Box::new(down(veth()))),
        Notification::LinkRemoved(Box::new(veth())),
    ] {
        assert_eq!(stale(&mirror, &notification), MirrorPart::COMPARED.into());
    }
    let gone = Notification::AddressRemoved(address_of_veth("198.51.100.1/24"));
    assert!(stale(&mirror, &gone).concerns(MirrorPart::Neighbours));
    let mut after = mirror.clone();
    after.links.remove(&VETH);
    assert!(losses(&mirror, &after, MirrorPart::Links).concerns(MirrorPart::Fdb));
}

/// No route has it as its source.
#[test]
fn a_link_local_address_takes_nothing_along_but_from_the_device() {
    let mut before = mirror_with_links();
    let of_device = Address {
        index: DEVICE,
        ..address_of_veth("fe80::1/64")
    };
    for (address, takes_along) in [(address_of_veth("fe80::2/64"), false), (of_device, true)] {
        let after = before.clone();
        let key = AddressKey::of(&address);
        before.addresses.insert(key, address_state(&address));
        let lost = losses(&before, &after, MirrorPart::Addresses);
        assert_eq!(
            lost.concerns(MirrorPart::Routes),
            takes_along,
            "{address:?}"
        );
        before = after;
    }
}

#[test]
fn a_link_of_others_that_is_seen_down_or_gone_costs_what_is_on_it() {
    let before = mirror_with_links();
    let mut after = before.clone();
    after.links.insert(VETH, down(veth()));
    assert_eq!(
        losses(&before, &after, MirrorPart::Links),
        Stale::link(VETH)
    );
    after.links.remove(&VETH);
    assert!(losses(&before, &after, MirrorPart::Links).is_empty());
}

/// The notification of a route that replaces another does not name that.
#[test]
fn a_route_to_a_pod_in_the_place_of_another_has_all_routes_read() {
    let taken = Route {
        destination: route().destination,
        ..pod_route()
    };
    let stale = stale(&mirror_with_links(), &Notification::Route(taken));
    assert_eq!(stale, [MirrorPart::Routes].into());
}

/// The next hops of others beside tweed's go with their link.
#[test]
fn a_link_with_a_next_hop_of_others_beside_tweeds_is_not_apart() {
    let mut mirror = mirror_with_links();
    mirror.disowned.push(Route {
        out: Some(VETH),
        ..route()
    });
    let gone = Notification::LinkRemoved(Box::new(veth()));
    assert_eq!(stale(&mirror, &gone), MirrorPart::COMPARED.into());
}

#[test]
fn routes_that_say_what_is_on_a_link_are_read_when_they_come_and_go() {
    let mut mirror = mirror();
    let own = AddressKey {
        device: 2,
        network: "192.0.2.1/24".parse().unwrap(),
    };
    mirror.addresses.insert(own, AddressState::Usable);
    let on_link = |protocol| Route {
        out: Some(2),
        link_scope: true,
        ..Route::to("192.0.2.0/24".parse().unwrap(), protocol)
    };
    let nothing = Stale::default();
    for protocol in CONNECTED_PROTOCOLS {
        let route = on_link(protocol);
        mirror.connected.clear();
        let gone = Notification::RouteRemoved(route.clone());
        assert_eq!(stale(&mirror, &gone), nothing);
        let comes = Notification::Route(route.clone());
        assert_eq!(stale(&mirror, &comes), [Connected].into());
        mirror.connected.extend(connected(&route));
        assert_eq!(stale(&mirror, &comes), nothing);
        assert_eq!(stale(&mirror, &gone), [Connected].into());
        let by_router = Route {
            gateway: Some("192.0.2.9".parse().unwrap()),
            ..route
        };
        let replaces = Notification::Route(by_router);
        assert_eq!(stale(&mirror, &replaces), [Connected].into());
        // What it replaces is on another link.
        let elsewhere = Route {
            out: Some(11),
            ..on_link(protocol)
        };
        let replaces = Notification::Route(elsewhere);
        assert_eq!(stale(&mirror, &replaces), [Connected].into());
    }
    // In the place of a route of tweed's.
    let taken = Route {
        destination: route().destination,
        ..on_link(route::STATIC_PROTOCOL)
    };
    assert_eq!(
        stale(&mirror, &Notification::Route(taken)),
        [Connected, Routes, ForeignRoutes].into()
    );
}
