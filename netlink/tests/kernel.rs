//! Every operation against the real kernel, each test in network namespaces of
//! its own, verified with another's eyes: `ip -j` and `bridge -j`. Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use tweed_netlink::link::{Change, VethEnd, Vxlan};
use tweed_netlink::monitor::{Monitor, Notification};
use tweed_netlink::neighbour;
use tweed_netlink::route::{self, Kind, Route};
use tweed_netlink::{Socket, address, link, netns};

/// Moves this thread, and with it the whole test, into a new namespace, which
/// goes when the test's thread ends.
fn new_namespace() -> File {
    unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root: they make network namespaces");
    File::open("/proc/thread-self/ns/net").unwrap()
}

/// A socket in a namespace of the test's own, which has the pair `h` and `p`.
fn new_namespace_with_pair() -> Socket {
    let namespace = new_namespace();
    let mut socket = Socket::open().unwrap();
    let pair = link::create_veth(
        &end("h", 1, 0, false),
        &end("p", 2, 0, false),
        namespace.as_fd(),
    );
    socket.execute(&pair).unwrap();
    socket
}

/// What a tool says inside this thread's namespace.
fn see(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn end(name: &str, last: u8, group: u32, noarp: bool) -> VethEnd {
    VethEnd {
        name: name.to_owned(),
        mac: [2, 0, 0, 0, 0, last],
        mtu: 1400,
        group,
        noarp,
    }
}

#[test]
fn a_veth_peer_is_born_inside_another_namespace() {
    let pod = std::thread::spawn(new_namespace).join().unwrap();
    new_namespace();
    let mut socket = Socket::open().unwrap();
    let request = link::create_veth(
        &end("host0", 1, 116, true),
        &end("eth0", 2, 0, false),
        pod.as_fd(),
    );
    socket.execute(&request).unwrap();

    let host = see("ip -j -d link show host0");
    for expected in [
        "\"group\":\"116\"",
        "\"mtu\":1400",
        "02:00:00:00:00:01",
        "NOARP",
        "\"veth\"",
    ] {
        assert!(host.contains(expected), "{expected} in {host}");
    }
    let inside = netns::inside(pod.as_fd(), || see("ip -j -d link show eth0")).unwrap();
    assert!(
        inside.contains("02:00:00:00:00:02") && inside.contains("1400"),
        "{inside}"
    );
    for end in [&host, &inside] {
        for queues in ["\"num_tx_queues\":1,", "\"num_rx_queues\":1,"] {
            assert!(end.contains(queues), "{queues} in {end}");
        }
    }

    let again = socket.execute(&request).unwrap_err();
    assert!(again.is_present(), "{again}");

    let mut inner = Socket::open_in(pod.as_fd()).unwrap();
    let seen = link::by_name(&mut inner, "eth0").unwrap().unwrap();
    let host = link::by_name(&mut socket, "host0").unwrap().unwrap();
    assert_eq!((seen.peer, host.peer), (Some(host.index), Some(seen.index)));
    assert!(seen.peer_netns.is_some());
    assert_eq!(host.kind.as_deref(), Some("veth"));
    assert_eq!((host.group, host.noarp, host.up), (116, true, false));

    socket.execute(&link::delete(host.index, "host0")).unwrap();
    assert_eq!(link::by_name(&mut inner, "eth0").unwrap(), None);

    let told = link::create(&mut socket, &request).unwrap();
    let seen = link::by_name(&mut socket, "host0").unwrap().unwrap().into();
    // A kernel before Linux 6.2 tells nothing.
    assert_eq!(told.unwrap_or(seen), seen);
    assert!(seen.peer.is_some() && seen.peer_netns.is_some(), "{seen:?}");
}

#[test]
fn a_batch_answers_each_request_in_its_place() {
    let namespace = new_namespace();
    let mut socket = Socket::open().unwrap();
    let pair = |n: u8| {
        let host = end(&format!("h{n}"), n, 0, false);
        link::create_veth(
            &host,
            &end(&format!("p{n}"), n, 0, false),
            namespace.as_fd(),
        )
    };
    let requests: Vec<_> = [1, 2, 1, 3].into_iter().map(pair).collect();
    let answers = socket.batch(&requests).unwrap();
    let kept: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(kept, [true, true, false, true]);
    assert_eq!(link::list(&mut socket).unwrap().len(), 7);
    assert_eq!(socket.changes_sent(), 4);
}

#[test]
fn a_change_to_a_link_is_seen_by_others() {
    let mut socket = new_namespace_with_pair();
    let index = link::by_name(&mut socket, "h").unwrap().unwrap().index;
    let change = Change::of(index, "h")
        .alias("tweed:a/b/c")
        .noarp()
        .without_link_local()
        .mtu(1300);
    socket.execute(&change.request()).unwrap();
    let change = Change::of(index, "h").without_redirects();
    socket.execute(&change.request()).unwrap();
    socket
        .execute(&Change::of_name("p").up().request())
        .unwrap();
    socket
        .execute(&Change::of(index, "h").up().request())
        .unwrap();
    let seen = see("ip -j -d link show dev h");
    for expected in [
        "\"ifalias\":\"tweed:a/b/c\"",
        "\"mtu\":1300",
        "NOARP",
        "\"inet6_addr_gen_mode\":\"none\"",
    ] {
        assert!(seen.contains(expected), "{expected} in {seen}");
    }
    let link = link::by_index(&mut socket, index).unwrap().unwrap();
    assert!(link.up && link.noarp);
    assert_eq!(link.alias.as_deref(), Some("tweed:a/b/c"));
    assert_eq!(link.ipv6.unwrap().addr_gen_mode, 1);
    assert!(!see("ip -6 addr show dev h").contains("fe80"));
    let redirects = ["accept_redirects", "send_redirects"]
        .map(|key| see(&format!("cat /proc/sys/net/ipv4/conf/h/{key}")));
    assert_eq!(redirects, ["0\n", "0\n"]);
}

#[test]
fn a_port_of_a_bridge_is_seen_and_set_free() {
    let mut socket = new_namespace_with_pair();
    see("ip link add br0 type bridge");
    see("ip link set dev h master br0");
    let bridge = link::by_name(&mut socket, "br0").unwrap().unwrap();
    let port = link::by_name(&mut socket, "h").unwrap().unwrap();
    assert_eq!((port.master, bridge.master), (Some(bridge.index), None));
    let change = Change::of(port.index, "h").without_master();
    socket.execute(&change.request()).unwrap();
    assert!(!see("ip link show dev h").contains("master"));
    let free = link::by_index(&mut socket, port.index).unwrap().unwrap();
    assert_eq!(free.master, None);
}

#[test]
fn a_vxlan_device_reads_back_as_it_was_asked_for() {
    new_namespace();
    see("ip link set lo up");
    let mut socket = Socket::open().unwrap();
    for (vni, local) in [(1, "192.0.2.1"), (2, "2001:db8::1")] {
        let local: IpAddr = local.parse().unwrap();
        let wanted = Vxlan::nolearning(vni, 8472, local);
        let name = format!("tweed.{vni}");
        socket
            .execute(&link::create_vxlan(
                &name,
                [2, 0, 0, 0, 0, 9],
                1450,
                &wanted,
            ))
            .unwrap();
        let link = link::by_name(&mut socket, &name).unwrap().unwrap();
        assert_eq!(link.vxlan, Some(wanted.clone()));
        assert_eq!(link.mac, Some([2, 0, 0, 0, 0, 9]));
        let seen = see(&format!("ip -j -d link show {name}"));
        assert!(
            seen.contains("\"learning\":false") && seen.contains("\"port\":8472"),
            "{seen}"
        );
    }
    see("ip link set tweed.1 type vxlan ttl 9");
    let changed = link::by_name(&mut socket, "tweed.1").unwrap().unwrap();
    assert_ne!(
        changed.vxlan,
        Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()))
    );
    let taken = socket
        .execute(&link::create_vxlan(
            "tweed.9",
            [2, 0, 0, 0, 0, 8],
            1450,
            &Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()),
        ))
        .unwrap_err();
    assert!(taken.is_present(), "{taken}");
}

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
            .execute(&neighbour::set(index, "h", near, [2, 0, 0, 0, 0, 7]))
            .unwrap();
        socket
            .execute(&neighbour::set(index, "h", near, [2, 0, 0, 0, 0, 8]))
            .unwrap();
        let neighbours = neighbour::list(&mut socket, index).unwrap();
        let entry = neighbours.iter().find(|n| n.ip == near).unwrap();
        assert_eq!(
            (entry.mac, entry.permanent),
            (Some([2, 0, 0, 0, 0, 8]), true)
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
    let mac = [2, 0, 0, 0, 0, 5];
    for outer in ["192.0.2.2", "192.0.2.3"] {
        socket
            .execute(&neighbour::set_fdb(
                index,
                "vx",
                mac,
                outer.parse().unwrap(),
            ))
            .unwrap();
    }
    let entries = neighbour::list_fdb(&mut socket, index).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].destination, Some("192.0.2.3".parse().unwrap()));
    assert!(entries[0].permanent);
    assert!(see("bridge -j fdb show dev vx").contains("192.0.2.3"));
    socket
        .execute(&neighbour::delete_fdb(index, "vx", mac, None))
        .unwrap();
    assert_eq!(neighbour::list_fdb(&mut socket, index).unwrap(), []);
}

#[test]
fn the_monitor_hears_what_others_change() {
    new_namespace();
    let mut monitor = Monitor::open().unwrap();
    see("ip link add dev a type veth peer name b");
    see("ip link set dev a up");
    see("ip link set dev b up");
    see("ip addr add 192.0.2.1/24 dev a");
    see("ip route add 10.0.0.0/8 dev a proto 116");
    see("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a nud permanent");
    see("ip link add vx type vxlan id 5 dstport 8472 nolearning");
    see("bridge fdb add 02:00:00:00:00:07 dev vx dst 192.0.2.2");
    see("ip route del 10.0.0.0/8 dev a");
    let heard = monitor.drain().unwrap();
    let has = |what: &str, test: &dyn Fn(&Notification) -> bool| {
        assert!(heard.iter().any(test), "{what} in {heard:?}");
    };
    has(
        "link",
        &|n| matches!(n, Notification::Link(l) if l.name == "vx"),
    );
    has(
        "address",
        &|n| matches!(n, Notification::Address(a) if a.network.prefix() == 24),
    );
    has(
        "route",
        &|n| matches!(n, Notification::Route(r) if r.protocol == 116),
    );
    has(
        "route gone",
        &|n| matches!(n, Notification::RouteGone(r) if r.protocol == 116),
    );
    has(
        "neighbour",
        &|n| matches!(n, Notification::Neighbour(n) if n.permanent),
    );
    has(
        "fdb",
        &|n| matches!(n, Notification::Fdb(f) if f.mac[5] == 7),
    );
    assert_eq!(monitor.drain().unwrap(), []);
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

#[test]
fn a_monitor_has_its_room_whatever_the_systems_limit() {
    new_namespace();
    let monitor = Monitor::with_room(8 << 20).unwrap();
    let room = nix::sys::socket::getsockopt(&monitor, nix::sys::socket::sockopt::RcvBuf);
    // The kernel doubles it for its own accounting: socket(7).
    assert_eq!(room, Ok(16 << 20));
}

#[test]
fn the_longest_alias_has_254_bytes() {
    new_namespace();
    see("ip link add name a type veth peer name b");
    let mut socket = Socket::open().unwrap();
    let index = link::by_name(&mut socket, "a").unwrap().unwrap().index;
    let mut set = |length: usize| {
        let alias = "x".repeat(length);
        let change = Change::of(index, "a").alias(&alias).request();
        socket
            .execute(&change)
            .map(|()| see("ip link show dev a").contains(&alias))
    };
    assert!(set(254).unwrap());
    assert!(set(255).is_err());
}

#[test]
fn a_monitor_that_missed_something_says_so_and_hears_again() {
    new_namespace();
    let mut monitor = Monitor::with_room(4096).unwrap();
    for n in 0..40 {
        see(&format!("ip link add name x{n} type veth peer name y{n}"));
    }
    assert!(monitor.drain().unwrap().contains(&Notification::Overflow));
    see("ip link del x0");
    let heard = monitor.drain().unwrap();
    assert!(
        heard
            .iter()
            .any(|n| matches!(n, Notification::LinkGone(l) if l.name == "x0")),
        "{heard:?}"
    );
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
            let mut other = Socket::open_in(namespace.as_fd()).unwrap();
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
