//! The own address on this machine, what its links carry, and which of them direct
//! routes take.

use std::net::IpAddr;

use super::*;
use crate::overlay::desired::{Route, RouteKey};
use crate::overlay::host::Path;

#[test]
fn an_address_that_is_not_usable_is_named_with_its_interface() {
    for (state, word, effect) in [
        (
            AddressState::Tentative,
            "duplicate address detection",
            Effect::RunningPods,
        ),
        (AddressState::Temporary, "temporary", Effect::Warning),
    ] {
        let mut host = v4_host();
        host.interfaces.get_mut(&2).unwrap().addresses[0].state = state;
        let plan = plan(&config(""), &v4().snapshot(), &host);
        // It works for as long as it is there.
        assert_eq!(plan.network.is_some(), state == AddressState::Temporary);
        let problem = &plan.problems[0];
        assert_eq!(problem.kind.word(), "underlay-address-unusable");
        assert_eq!(problem.effect, effect);
        assert!(problem.message.contains("eth0"));
        assert!(problem.message.contains(word));
    }
}

fn path(mtu: u32, link: &str) -> Path {
    let link = link.to_owned();
    Path { mtu, link }
}

#[test]
fn the_mtu_is_that_of_the_way_that_most_nodes_are_reached_by() {
    let mut host = v4_host();
    let mut mtu = |ways: &[(u32, &str)], loopback: bool| {
        let interface = host.interfaces.get_mut(&2).unwrap();
        (interface.loopback, interface.mtu) = (loopback, if loopback { 65536 } else { 1500 });
        let targets = (1_u8..).map(|last| IpAddr::from([203, 0, 113, last]));
        let paths = ways.iter().map(|(mtu, link)| path(*mtu, link));
        host.paths = targets.zip(paths).collect();
        let plan = plan(&config(""), &v4().snapshot(), &host);
        (plan.network.unwrap().pod_mtu, plan.problems)
    };
    assert_eq!(mtu(&[], false), (1450, vec![]));
    assert_eq!(mtu(&[(9000, "eth1")], true), (8950, vec![]));
    assert_eq!(mtu(&[(1400, "eth1")], false), (1350, vec![]));
    let odd = [(700, "wg0"), (9000, "eth1"), (9000, "eth1")];
    assert_eq!(mtu(&odd, true), (8950, vec![]), "one alone is outvoted");
    let even = [(9000, "eth1"), (1400, "eth2")];
    assert_eq!(mtu(&even, true), (1350, vec![]), "the smaller of two");
}

/// A machine with 192.0.2.1/32 on an interface of this kind, without any way.
fn without_way(loopback: bool, dummy: bool) -> HostFacts {
    let mut host = host(1500, &["192.0.2.1/32"]);
    let interface = host.interfaces.get_mut(&2).unwrap();
    (interface.loopback, interface.dummy) = (loopback, dummy);
    host
}

#[test]
fn an_interface_that_leads_nowhere_tells_no_mtu() {
    for (loopback, dummy) in [(true, false), (false, true)] {
        let host = without_way(loopback, dummy);
        let unknown = plan(&config(""), &v4().snapshot(), &host);
        assert_eq!(unknown.network, None, "never that of lo");
        let words: Vec<&str> = unknown.problems.iter().map(|p| p.kind.word()).collect();
        assert_eq!(words, ["mtu-unknown"]);
        assert_eq!(unknown.problems[0].effect, Effect::NewPods);
        let place = unknown.unmeasured.unwrap();
        assert_eq!(place.underlay.address, IpAddr::from([192, 0, 2, 1]));
        assert!(place.peers.contains(&IpAddr::from([192, 0, 2, 2])));

        // What a person says needs no way.
        let fixed = plan(&config("--mtu 1400"), &v4().snapshot(), &host);
        assert_eq!(
            (fixed.network.unwrap().pod_mtu, fixed.problems),
            (1400, vec![])
        );
        let small = plan(&config("--mtu 575"), &v4().snapshot(), &host);
        assert_eq!(small.network, None);
        assert_eq!(
            small.unmeasured.map(|place| place.underlay),
            Some(place.underlay)
        );
        assert_eq!(small.problems[0].kind.word(), "mtu-too-small");
    }
    let ordinary = plan(&config(""), &v4().snapshot(), &without_way(false, false));
    assert_eq!(
        (ordinary.network.unwrap().pod_mtu, ordinary.problems),
        (1450, vec![])
    );
    let mut host = v4_host();
    host.interfaces.get_mut(&2).unwrap().dummy = true;
    assert!(
        plan(&config(""), &v4().snapshot(), &host).network.is_some(),
        "it has a network"
    );
}

#[test]
fn without_a_way_the_mtu_is_not_larger_than_it_was() {
    let mtu = |loopback, last| {
        let mut host = without_way(loopback, false);
        host.last_pod_mtu = Some(last);
        plan(&config(""), &v4().snapshot(), &host)
            .network
            .unwrap()
            .pod_mtu
    };
    assert_eq!(mtu(true, 8950), 8950);
    assert_eq!(mtu(true, 1350), 1350);
    assert_eq!(mtu(false, 1350), 1350);
    assert_eq!(mtu(false, 8950), 1450, "its own interface carries no more");
    let mut host = without_way(true, false);
    host.last_pod_mtu = Some(1450);
    let fixed = plan(&config("--mtu 9000"), &v4().snapshot(), &host);
    assert_eq!(
        (fixed.network.unwrap().pod_mtu, fixed.problems),
        (9000, vec![])
    );
}

#[test]
fn an_mtu_that_is_too_small_is_that_of_the_way() {
    let mut host = v4_host();
    host.paths = [([192, 0, 2, 2].into(), path(600, "wg0"))].into();
    let plan = plan(&config(""), &v4().snapshot(), &host);
    assert_eq!(plan.network, None);
    assert_eq!(plan.problems[0].object, "wg0");
    assert_eq!(
        plan.problems[0].message,
        "pods would have an MTU of 550, and IPv4 needs 576: wg0 carries 600, and 50 go to the tunnel"
    );
}

#[test]
fn a_node_on_another_link_than_the_own_address_is_not_reached_directly() {
    let mut host = v4_host();
    host.connected.insert(ConnectedRoute {
        destination: "198.51.100.0/24".parse().unwrap(),
        interface: 3,
        by_hand: false,
    });
    let own = node("me").cidr("10.244.0.0/24").internal("192.0.2.1");
    let other = node("a").cidr("10.244.1.0/24").internal("198.51.100.2");
    let nodes = Nodes::new(own, [other]);
    let plan = plan(&config("--backend direct"), &nodes.snapshot(), &host);
    let message = &plan.problems[0].message;
    assert!(message.contains("is not on the same link"), "{message}");
    let key = RouteKey::to("10.244.1.0/24".parse().unwrap());
    assert_eq!(plan.network.unwrap().desired.routes.get(&key), None);
}

#[test]
fn direct_routes_lead_over_the_link_of_the_own_address() {
    let mut host = v4_host();
    for (index, prefix) in [(1, 24), (3, 24), (4, 28)] {
        host.connected.insert(ConnectedRoute {
            destination: IpNetwork::new([192, 0, 2, 0].into(), prefix).unwrap(),
            interface: index,
            by_hand: false,
        });
    }
    let plan = plan(&config("--backend direct"), &v4().snapshot(), &host);
    let network = plan.network.unwrap();
    assert_eq!(network.own_addresses, [([192, 0, 2, 1].into(), 2)].into());
    let key = RouteKey::to("10.244.1.0/24".parse().unwrap());
    let gateway = [192, 0, 2, 2].into();
    let expected = Route::Direct { gateway, link: 2 };
    assert_eq!(network.desired.routes[&key], expected);
}

/// A route that a person has written says what is on the link, and no more: it refuses
/// nobody's claim, as one that another plugin has for a pod CIDR would.
#[test]
fn a_route_by_hand_leads_to_nodes_and_refuses_none() {
    let own = node("me").cidr("10.244.0.0/24").internal("192.0.2.1");
    let other = node("a").cidr("10.244.1.0/24").internal("192.0.2.3");
    let nodes = Nodes::new(own, [other]);
    let mut host = host(1500, &["192.0.2.1/32"]);
    let mut connect = |destination: &str, by_hand| {
        host.connected.insert(ConnectedRoute {
            destination: destination.parse().unwrap(),
            interface: 2,
            by_hand,
        });
        let plan = plan(&config("--backend direct"), &nodes.snapshot(), &host);
        let problems = plan.problems.iter();
        let words: Vec<&str> = problems.map(|problem| problem.kind.word()).collect();
        (plan.network.is_some(), words)
    };
    // Its last address is that of `a`.
    assert_eq!(connect("192.0.2.0/30", true), (true, vec![]));
    assert_eq!(connect("10.244.0.0/24", true), (true, vec![]));
    assert_eq!(connect("10.244.1.0/24", true), (true, vec![]));
    let (planned, words) = connect("10.244.0.0/24", false);
    assert!(!planned, "{words:?}");
    assert!(words.contains(&"pod-cidr-refused"), "{words:?}");
}

/// With BGP to the host the address may be on a bridge without ports.
#[test]
fn an_interface_that_is_down_matters_if_packets_leave_by_it() {
    let down = |flags: &str, address: &str, link: Option<&str>| {
        let mut host = host(1500, &[address]);
        host.interfaces.get_mut(&2).unwrap().up = false;
        let way = link.map(|link| ([192, 0, 2, 2].into(), path(1500, link)));
        host.paths = way.into_iter().collect();
        let plan = plan(&config(flags), &v4().snapshot(), &host);
        let mut words = plan.problems.iter().map(|problem| problem.kind.word());
        words.any(|word| word == "underlay-down")
    };
    let (alone, network) = ("192.0.2.1/32", "192.0.2.1/24");
    assert!(down("", alone, None));
    assert!(down("", alone, Some("eth0")));
    assert!(!down("", alone, Some("eth1")));
    assert!(!down("", network, Some("eth1")));
    // Direct routes lead over the interface of the own address, whatever the kernel prefers.
    for address in [alone, network] {
        assert!(down("--backend direct", address, Some("eth1")), "{address}");
    }
    assert!(down("--backend cross-subnet", network, Some("eth1")));
    assert!(!down("--backend cross-subnet", alone, Some("eth1")));
}

/// A machine with 192.0.2.1 on these interfaces, which are numbered from 1: each with the
/// prefix length of its network, and what is special to it.
fn copies(interfaces: &[(u8, &str)]) -> HostFacts {
    let mut all = HostFacts::default();
    for (index, (prefix, special)) in (1..).zip(interfaces) {
        let one = host(1500, &[&format!("192.0.2.1/{prefix}")]);
        let [mut interface] = one
            .interfaces
            .into_values()
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        match *special {
            "" => {}
            "down" => interface.up = false,
            "loopback" => interface.loopback = true,
            "dummy" => interface.dummy = true,
            "port" => interface.port = true,
            "tentative" => interface.addresses[0].state = AddressState::Tentative,
            other => panic!("{other}"),
        }
        all.interfaces.insert(index, interface);
        let connected = one.connected.into_iter();
        all.connected.extend(connected.map(|route| ConnectedRoute {
            interface: index,
            ..route
        }));
    }
    all
}

#[test]
fn a_copy_of_the_own_address_elsewhere_is_not_taken_for_it() {
    for interfaces in [
        // As of IPVS, a load balancer, a bridge whose port has kept the address.
        &[(32, "dummy"), (24, "")],
        &[(32, "loopback"), (24, "")],
        &[(24, "port"), (24, "")],
        &[(24, "dummy"), (24, "")],
        &[(24, "down"), (24, "")],
        &[(32, "down"), (32, "loopback")],
        &[(24, "tentative"), (32, "")],
        // It has lost its carrier.
        &[(32, "loopback"), (24, "down")],
        &[(32, ""), (24, "down")],
    ] {
        let host = copies(interfaces);
        let holder = host.holder([192, 0, 2, 1].into());
        assert_eq!(holder.map(|(index, ..)| index), Some(2), "{interfaces:?}");
    }
    // A network that the address is not in says nothing of it.
    let mut host = copies(&[(32, ""), (32, "")]);
    host.connected.insert(ConnectedRoute {
        destination: "198.51.100.0/24".parse().unwrap(),
        interface: 2,
        by_hand: false,
    });
    let holder = host.holder([192, 0, 2, 1].into());
    assert_eq!(holder.map(|(index, ..)| index), Some(1), "the lowest index");
}
