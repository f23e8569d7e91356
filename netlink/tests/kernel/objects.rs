//! Addresses, routes, neighbours, FDB entries, and what holds for all requests.

use std::net::IpAddr;
use std::os::fd::AsFd;

use tweed_core::mac::Mac;
use tweed_netlink::route::{self, Kind, Route};
use tweed_netlink::{Socket, address, fdb, link, neighbour, netns};

use crate::{new_namespace, new_namespace_with_pair, see};

#[test]
fn addresses_routes_and_neighbours_of_both_families_read_back() {
    let mut socket = new_namespace_with_pair();
    let index = link::by_name(&mut socket, "h").unwrap().unwrap().index;
    see("ip link set lo up");
    see("ip link set dev p up");
    see("ip link set dev h up");
    for (own, near, far, unreachable) in [
        ("192.0.2.1/24", "192.0.2.9", "10.1.0.0/24", "10.0.0.0/8"),
        ("2001:db8::1/64", "2001:db8::9", "fd01::/64", "fd00::/8"),
    ] {
        let own: ipnetwork::IpNetwork = own.parse().unwrap();
        let near: IpAddr = near.parse().unwrap();
        socket.execute(&address::add(index, "h", own)).unwrap();
        assert!(
            address::list(&mut socket)
                .unwrap()
                .iter()
                .any(|a| a.network == own && !a.tentative)
        );

        socket
            .execute(&neighbour::set(index, "h", near, Mac([2, 0, 0, 0, 0, 7])))
            .unwrap();
        socket
            .execute(&neighbour::set(index, "h", near, Mac([2, 0, 0, 0, 0, 8])))
            .unwrap();
        let neighbours = neighbour::list(&mut socket, index).unwrap();
        let entry = neighbours.iter().find(|n| n.ip == near).unwrap();
        assert_eq!(
            (entry.mac, entry.permanent),
            (Some(Mac([2, 0, 0, 0, 0, 8])), true)
        );

        let host = Route {
            link_scope: true,
            out: Some(index),
            source: Some(own.ip()),
            ..Route::to(near.into(), 116)
        };
        let via = Route {
            gateway: Some(near),
            onlink: true,
            out: Some(index),
            ..Route::to(far.parse().unwrap(), 116)
        };
        let last = Route {
            kind: Kind::Unreachable,
            metric: u32::MAX,
            ..Route::to(unreachable.parse().unwrap(), 116)
        };
        for route in [&host, &via, &last] {
            socket.execute(&route::add(route)).unwrap();
            assert!(
                socket.execute(&route::add(route)).unwrap_err().is_present(),
                "{route}"
            );
        }
        let mut listed = route::list(&mut socket, Some(116)).unwrap();
        // IPv6 has no link scope: what is dumped says universe.
        for route in &mut listed {
            route.link_scope |= route.gateway.is_none() && route.out.is_some();
        }
        assert_eq!(listed.len(), 3, "{listed:?}");
        for route in [&host, &via, &last] {
            assert!(listed.contains(route), "{route:?} in {listed:?}");
            socket.execute(&route::delete(route)).unwrap();
            assert!(
                socket
                    .execute(&route::delete(route))
                    .unwrap_err()
                    .is_absent(),
                "{route}"
            );
        }
        socket
            .execute(&neighbour::delete(index, "h", near))
            .unwrap();
        assert!(
            neighbour::list(&mut socket, index)
                .unwrap()
                .iter()
                .all(|n| n.ip != near)
        );
        socket.execute(&address::delete(index, "h", own)).unwrap();
    }
}

#[test]
fn an_fdb_entry_leads_to_one_place() {
    new_namespace();
    see("ip link add vx type vxlan id 5 dstport 8472 local 192.0.2.1 nolearning");
    let mut socket = Socket::open().unwrap();
    let index = link::by_name(&mut socket, "vx").unwrap().unwrap().index;
    let mac = Mac([2, 0, 0, 0, 0, 5]);
    for outer in ["192.0.2.2", "192.0.2.3"] {
        socket
            .execute(&fdb::set(index, "vx", mac, outer.parse().unwrap()))
            .unwrap();
    }
    let entries = fdb::list(&mut socket, index).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].destination, Some("192.0.2.3".parse().unwrap()));
    assert!(entries[0].permanent);
    assert!(see("bridge -j fdb show dev vx").contains("192.0.2.3"));
    socket.execute(&fdb::delete(index, "vx", mac)).unwrap();
    assert_eq!(fdb::list(&mut socket, index).unwrap(), []);
}

#[test]
fn an_error_names_operation_object_and_reason() {
    new_namespace();
    let mut socket = Socket::open().unwrap();
    let route = Route {
        gateway: Some("192.0.2.1".parse().unwrap()),
        ..Route::to("10.0.0.0/8".parse().unwrap(), 116)
    };
    let error = socket.execute(&route::add(&route)).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot add route 10.0.0.0/8 via 192.0.2.1: "),
        "{error}"
    );
    assert!(error.contains("Network is unreachable"), "{error}");
}

/// Routes that come and go while they are listed interrupt the dump; those
/// that stay must be in every list.
#[test]
fn a_list_is_whole_while_others_change_it() {
    let namespace = new_namespace();
    let mut socket = Socket::open().unwrap();
    see("ip link set lo up");
    let index = link::by_name(&mut socket, "lo").unwrap().unwrap().index;
    let host = |a: u8, b: u8| Route {
        link_scope: true,
        out: Some(index),
        ..Route::to(IpAddr::from([10, a, b / 250, b % 250]).into(), 116)
    };
    let lasting: Vec<_> = (0..8)
        .flat_map(|a| (0..250).map(move |b| host(a, b)))
        .collect();
    for answer in socket
        .batch(&lasting.iter().map(route::add).collect::<Vec<_>>())
        .unwrap()
    {
        answer.unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = netns::inside(namespace.as_fd(), Socket::open)
                .unwrap()
                .unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for a in [100, 3] {
                    let passing = Route {
                        metric: 7,
                        ..host(a, 7)
                    };
                    other.execute(&route::add(&passing)).unwrap();
                    other.execute(&route::delete(&passing)).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for _ in 0..50 {
            let listed = route::list(&mut socket, Some(116));
            let missing = listed.map(|listed| {
                lasting
                    .iter()
                    .filter(|route| !listed.contains(route))
                    .count()
            });
            if !matches!(missing, Ok(0)) {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("{missing:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn another_sender_s_message_does_not_reach_the_socket() {
    new_namespace();
    let socket = Socket::open().unwrap();
    let mut other = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
    other.bind_auto().unwrap();
    let address = netlink_sys::SocketAddr::new(socket.port().unwrap(), 0);
    let refused = other.send_to(&[0; 16], &address, 0).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
