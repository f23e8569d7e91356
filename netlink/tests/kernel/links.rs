//! Links: veth pairs, VXLAN devices and changes to them.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::{fd::AsFd, unix::ffi::OsStrExt};
use std::process::Command;

use tweed_core::{family::Family, mac::Mac};
use tweed_netlink::leaving::{Deletion, draw};
use tweed_netlink::link::{Change, Link, Vxlan};
use tweed_netlink::{Monitor, Notification, Socket, address, link, netns, owned, rule};

use crate::{end, new_namespace, new_namespace_with_pair, see};

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

    let mut inner = netns::inside(pod.as_fd(), Socket::open).unwrap().unwrap();
    let seen = link::by_name(&mut inner, "eth0").unwrap().unwrap();
    let host = link::by_name(&mut socket, "host0").unwrap().unwrap();
    assert_eq!((seen.peer, host.peer), (Some(host.index), Some(seen.index)));
    assert!(seen.peer_netns.is_some());
    assert_eq!(host.kind.as_deref(), Some("veth"));
    assert_eq!((host.group, host.noarp, host.up), (116, true, false));

    socket.execute(&link::delete(host.index, "host0")).unwrap();
    assert_eq!(link::by_name(&mut inner, "eth0").unwrap(), None);

    let told = link::create(&mut socket, &request).unwrap();
    let seen = link::by_name(&mut socket, "host0").unwrap().unwrap();
    let numbers = |link: &Link| (link.index, link.peer, link.peer_netns);
    // A kernel before Linux 6.2 tells nothing.
    assert_eq!(
        told.as_ref().map_or(numbers(&seen), numbers),
        numbers(&seen)
    );
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
    std::fs::write("/proc/sys/net/ipv4/conf/h/forwarding", "0").unwrap();
    let change = Change::of(index, "h").as_ipv4_gateway();
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
    let ipv4 = ["accept_redirects", "send_redirects", "forwarding"]
        .map(|key| see(&format!("cat /proc/sys/net/ipv4/conf/h/{key}")));
    assert_eq!(ipv4, ["0\n", "0\n", "1\n"]);
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
                Mac([2, 0, 0, 0, 0, 9]),
                1450,
                &wanted,
            ))
            .unwrap();
        let link = link::by_name(&mut socket, &name).unwrap().unwrap();
        assert_eq!(link.vxlan, Some(wanted.clone()));
        assert_eq!(link.mac, Some(Mac([2, 0, 0, 0, 0, 9])));
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
            Mac([2, 0, 0, 0, 0, 8]),
            1450,
            &Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()),
        ))
        .unwrap_err();
    assert!(taken.is_present(), "{taken}");
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

/// The kernel takes any bytes for the texts that people choose, and has an address labelled
/// with the name of its link.
#[test]
fn links_addresses_and_rules_are_read_whatever_bytes_people_name_them_by() {
    new_namespace();
    see("ip link add name a type veth peer name b");
    see("ip address add 192.0.2.1/24 dev a");
    let mut monitor = Monitor::open().unwrap();
    for (arguments, bytes) in [
        ("link set dev a alias", b"B\xfcro".as_slice()),
        ("link property add dev a altname", b"\xe4lt"),
        ("link set dev a name", b"n\xf6"),
        ("rule add pref 7 lookup 7 iif", b"n\xf6"),
    ] {
        let mut ip = Command::new("ip");
        ip.args(arguments.split(' ')).arg(OsStr::from_bytes(bytes));
        assert!(ip.status().unwrap().success(), "{arguments}");
    }
    let mut socket = Socket::open().unwrap();
    let links = link::list(&mut socket).unwrap();
    let renamed = links.iter().find(|link| link.name == "n?");
    let found = renamed.unwrap_or_else(|| panic!("{links:?}"));
    assert_eq!(found.alias.as_deref(), Some("B?ro"));
    let one = link::by_index(&mut socket, found.index).unwrap();
    assert_eq!(one.as_ref(), Some(found));
    let heard = monitor.drain().unwrap();
    let is_found =
        |n: &Notification| matches!(n, Notification::Link(link) if link.name == found.name);
    assert!(heard.iter().any(is_found), "{heard:?}");
    let addresses = address::list(&mut socket).unwrap();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    let rules = rule::list(&mut socket, Family::V4).unwrap();
    assert!(rules.iter().any(|rule| rule.priority == 7), "{rules:?}");
}

/// A socket in a namespace of the test's own with three leaving links.
fn with_leaving_links() -> (Socket, Vec<Link>) {
    new_namespace();
    for n in 1..=3 {
        see(&format!(
            "ip link add twx{n} group 117 type veth peer name end{n}"
        ));
        see(&format!("ip link set twx{n} alias tweed:tweed/c{n}/eth0"));
    }
    let mut socket = Socket::open().unwrap();
    let links = link::list(&mut socket).unwrap();
    (socket, links)
}

fn names(socket: &mut Socket) -> Vec<String> {
    let links = link::list(socket).unwrap().into_iter();
    let names = links.map(|link| link.name);
    names.filter(|name| name != "lo").collect()
}

/// What is put into their group between the look and the deletion stays, and so does a
/// link that somebody else has given the group of such a deletion.
#[test]
fn leaving_links_are_deleted_and_no_other() {
    let (mut socket, links) = with_leaving_links();
    let requests = Deletion::of(&links, draw).requests();
    assert_eq!(requests.len(), 4);
    see("ip link add foreign group 117 type veth peer name other");
    see("ip link add mine group 1946157063 type veth peer name yours");
    let answers = socket.batch(&requests).unwrap();
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(names(&mut socket), ["other", "foreign", "yours", "mine"]);
}

#[test]
fn a_deletion_that_was_cut_off_is_finished_by_the_next() {
    let (mut socket, links) = with_leaving_links();
    let requests = Deletion::of(&links, draw).requests();
    socket.batch(&requests[..2]).unwrap();
    let cut_off = link::list(&mut socket).unwrap();
    let leaving = cut_off.iter().filter(|link| owned::is_leaving_link(link));
    assert_eq!(leaving.count(), 3);
    // One is gone before the next one gets to it.
    let requests = Deletion::of(&cut_off, draw).requests();
    see("ip link delete twx2");
    let answers = socket.batch(&requests).unwrap();
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(refused.len() == 1 && refused[0].is_absent(), "{refused:?}");
    assert_eq!(names(&mut socket), Vec::<String>::new());
}
