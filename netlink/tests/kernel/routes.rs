//! Routes that share a key with others, and the way to an address.

use std::net::IpAddr;

use tweed_netlink::route::{self, Route, Sequence};
use tweed_netlink::{Socket, link, path};

use crate::{new_namespace_with_pair, see};

/// `h` is up, with addresses of both families; the far end is 192.0.2.9 and
/// 2001:db8::9. Gives the index of `h`.
fn new_network() -> (Socket, u32) {
    let mut socket = new_namespace_with_pair();
    for line in [
        "link set dev lo up",
        "link set dev p up",
        "link set dev h up",
        "address add 192.0.2.1/24 dev h",
        "address add 2001:db8::1/64 dev h nodad",
    ] {
        see(&format!("ip {line}"));
    }
    let index = link::by_name(&mut socket, "h").unwrap().unwrap().index;
    (socket, index)
}

fn via(gateway: &str, destination: &str, index: u32) -> Route {
    Route {
        gateway: Some(gateway.parse().unwrap()),
        out: Some(index),
        ..Route::to(destination.parse().unwrap(), 116)
    }
}

/// Sends the requests of [`route::replace`] as they are meant to be.
fn replace(socket: &mut Socket, old: &Route, new: &Route) -> Vec<String> {
    let Sequence { first, then, undo } = route::replace(old, new);
    let answers = socket.batch(&first).unwrap();
    let mut errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let last = if errors.is_empty() { then } else { undo };
    errors.extend(last.and_then(|last| socket.execute(&last).err()));
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_replacement_leaves_one_route_of_both_families() {
    let (mut socket, index) = new_network();
    for (destination, near, next) in [
        ("10.1.0.0/24", "192.0.2.8", "192.0.2.9"),
        ("fd01::/64", "2001:db8::8", "2001:db8::9"),
    ] {
        let old = via(near, destination, index);
        let same_hop = Route {
            source: Some(
                if near.contains(':') {
                    "2001:db8::1"
                } else {
                    "192.0.2.1"
                }
                .parse()
                .unwrap(),
            ),
            ..old.clone()
        };
        let other_hop = via(next, destination, index);
        socket.execute(&route::add(&old)).unwrap();
        for (before, after) in [(&old, &same_hop), (&same_hop, &other_hop)] {
            assert_eq!(replace(&mut socket, before, after), [""; 0]);
            let listed = route::list(&mut socket, Some(116)).unwrap();
            let here = listed
                .iter()
                .filter(|one| one.destination == after.destination);
            assert_eq!(here.collect::<Vec<_>>(), [after]);
        }
    }
}

#[test]
fn a_replacement_that_is_refused_leaves_the_route_that_was_there() {
    let (mut socket, index) = new_network();
    // No gateway can be a broadcast address, or an IPv6 address of this machine.
    for (destination, good, bad) in [
        ("10.1.0.0/24", "192.0.2.8", "192.0.2.255"),
        ("fd01::/64", "2001:db8::8", "2001:db8::1"),
    ] {
        let old = via(good, destination, index);
        socket.execute(&route::add(&old)).unwrap();
        let new = via(bad, destination, index);
        assert_eq!(replace(&mut socket, &old, &new).len(), 1, "{destination}");
        let listed = route::list(&mut socket, Some(116)).unwrap();
        assert!(listed.contains(&old), "{listed:?}");
    }
}

#[test]
fn a_replacement_touches_no_route_of_others_with_the_key() {
    let (mut socket, index) = new_network();
    let old = via("192.0.2.8", "10.1.0.0/24", index);
    let new = via("192.0.2.9", "10.1.0.0/24", index);
    socket.execute(&route::add(&old)).unwrap();
    see("ip route prepend 10.1.0.0/24 via 192.0.2.77");
    assert_eq!(replace(&mut socket, &old, &new), [""; 0]);
    let routes = see("ip route show 10.1.0.0/24");
    assert!(routes.starts_with("10.1.0.0/24 via 192.0.2.77"), "{routes}");
    assert!(routes.contains("via 192.0.2.9 dev h proto 116"), "{routes}");
    assert!(!routes.contains("192.0.2.8"), "{routes}");
    let others = route::find(&mut socket, None, |one| {
        one.destination == new.destination && one.protocol != 116
    });
    assert_eq!(others.unwrap().len(), 1);

    // IPv6 shows both as one route, with the protocol of the first.
    let old = via("2001:db8::8", "fd01::/64", index);
    let new = via("2001:db8::9", "fd01::/64", index);
    socket.execute(&route::add(&old)).unwrap();
    see("ip -6 route append fd01::/64 via 2001:db8::77 dev h");
    let hops = route::list(&mut socket, Some(116)).unwrap();
    let foreign = via("2001:db8::77", "fd01::/64", index);
    assert!(hops.contains(&old) && hops.contains(&foreign), "{hops:?}");
    let absent = socket.execute(&route::delete(&foreign)).unwrap_err();
    assert!(absent.is_absent(), "{absent}");
    assert_eq!(replace(&mut socket, &old, &new), [""; 0]);
    let routes = see("ip -6 route show fd01::/64");
    assert!(routes.contains("via 2001:db8::77"), "{routes}");
    assert!(routes.contains("via 2001:db8::9"), "{routes}");
    assert!(!routes.contains("via 2001:db8::8"), "{routes}");
    // It is the other's now, and the first again as soon as that is gone.
    assert!(!routes.contains("proto 116"), "{routes}");
    see("ip -6 route delete fd01::/64 via 2001:db8::77 dev h");
    let routes = route::list(&mut socket, Some(116)).unwrap();
    assert!(
        routes.contains(&new) && !routes.contains(&old),
        "{routes:?}"
    );

    // One that is refused is put back there too.
    see("ip -6 route append fd01::/64 via 2001:db8::77 dev h");
    let bad = via("2001:db8::1", "fd01::/64", index);
    assert_eq!(replace(&mut socket, &new, &bad).len(), 1);
    let routes = see("ip -6 route show fd01::/64");
    assert!(routes.contains("via 2001:db8::9"), "{routes}");
}

#[test]
fn a_deletion_takes_the_route_of_its_metric() {
    let (mut socket, index) = new_network();
    for (gateway, destination) in [("192.0.2.8", "10.1.0.0/24"), ("2001:db8::8", "fd01::/64")] {
        let default = via(gateway, destination, index);
        let with_metric = |metric| Route {
            metric,
            ..default.clone()
        };
        let (first, last) = (with_metric(10), with_metric(2000));
        for route in [&first, &default, &last] {
            socket.execute(&route::add(route)).unwrap();
        }
        let mut delete = |route, left: &[&Route]| {
            socket.execute(&route::delete(route)).unwrap();
            let found = route::list(&mut socket, Some(116)).unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), left);
        };
        delete(&default, &[&first, &last]);
        delete(&last, &[&first]);
        delete(&first, &[]);
    }
}

#[test]
fn the_way_to_an_address_is_the_entry_of_the_table() {
    let (mut socket, index) = new_network();
    see("ip route add 10.1.0.0/16 via 192.0.2.9");
    see("ip route add 10.2.0.0/16 via 192.0.2.9 mtu 1300");
    see("ip route add unreachable 10.3.0.0/16");
    see("ip route add 10.4.0.0/16 nexthop via 192.0.2.8 nexthop via 192.0.2.9");
    see("ip -6 route add fd02::/64 via 2001:db8::9 mtu 1290");
    let own: IpAddr = "192.0.2.1".parse().unwrap();
    let mut way = |to: &str, from| path::to(&mut socket, to.parse().unwrap(), from).unwrap();
    let found = |out: &[u32], mtu| {
        let out = out.to_vec();
        Some(path::Path { out, mtu })
    };
    assert_eq!(way("192.0.2.9", Some(own)), found(&[index], None));
    assert_eq!(way("10.1.0.1", Some(own)), found(&[index], None));
    assert_eq!(way("10.2.0.1", None), found(&[index], Some(1300)));
    assert_eq!(way("fd02::1", None), found(&[index], Some(1290)));
    assert_eq!(way("10.4.0.1", None), found(&[index, index], None));
    assert_eq!(way("10.3.0.1", None), None);
    assert_eq!(way("203.0.113.1", None), None);
    assert_eq!(
        way("192.0.2.9", Some("198.51.100.1".parse().unwrap())),
        None
    );
}

#[test]
fn the_route_that_a_packet_takes_names_the_table_that_a_rule_led_to() {
    let (mut socket, _) = new_network();
    for (family, to, gateway) in [
        ("-4", "10.1.0.1", "192.0.2.9"),
        ("-6", "fd02::1", "2001:db8::9"),
    ] {
        see(&format!("ip {family} route add {to} via {gateway}"));
        see(&format!(
            "ip {family} route add {to} via {gateway} table 52"
        ));
        let to: IpAddr = to.parse().unwrap();
        let mut table = || {
            path::lookup(&mut socket, to, None, None)
                .unwrap()
                .map(|r| r.table)
        };
        assert_eq!(table(), Some(route::MAIN_TABLE));
        see(&format!("ip {family} rule add lookup 52 priority 9"));
        assert_eq!(table(), Some(52));
    }
}
