//! The own address on the underlay: where it is, what its links carry, and how others
//! learn of it.

use std::ffi::OsStr;
use std::{os::unix::ffi::OsStrExt, process::Command};

use crate::families;
use crate::node::{Node, eventually, ip};

/// A MAC that no link here has.
const OLD_MAC: &str = "02:00:00:00:00:99";

/// `eth9` has no carrier, and is the younger of the two; `lo` has a copy of the address,
/// as load balancers set it up.
#[test]
fn direct_routes_leave_by_the_link_of_the_own_address() {
    let node = Node::new();
    ip("link add eth9 type veth peer name wire9");
    ip("link set eth9 up");
    ip("address add 192.0.2.77/24 dev eth9");
    ip("address add 192.0.2.1/32 dev lo");
    node.list(1..=2);
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
    let route = ip("route show 10.0.2.0/24");
    assert!(route.contains("via 192.0.2.2 dev eth0"), "{route}");
    agent.passes();
    assert_eq!(agent.drift_repaired(), 0);
}

/// As systemd-networkd and NetworkManager set links up: addresses have no routes of the
/// kernel's.
#[test]
fn direct_routes_lead_over_a_link_whose_routes_another_program_has_made() {
    let node = Node::new();
    ip("address delete 192.0.2.1/24 dev eth0");
    ip("address add 192.0.2.1/24 dev eth0 noprefixroute");
    ip("address add 2001:db8::1/128 dev eth0 nodad");
    ip("route add 192.0.2.0/24 dev eth0 proto dhcp scope link metric 100");
    ip("route add 2001:db8::/64 dev eth0 proto ra metric 100");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
    let reaches = || {
        let four = ip("-4 route show 10.0.2.0/24");
        assert!(four.contains("via 192.0.2.2 dev eth0"), "{four}");
        let six = ip("-6 route show fd00:0:0:2::/64");
        assert!(six.contains("via 2001:db8::2 dev eth0"), "{six}");
    };
    reaches();

    ip("route delete 192.0.2.0/24 proto dhcp");
    agent.complains("node-not-reached");
    ip("route add 192.0.2.0/24 dev eth0 proto static scope link");
    agent.ready();
    reaches();
    // Replaced by one that leads to a router: the kernel names the new one alone.
    ip("route replace 192.0.2.0/24 via inet6 2001:db8::9 dev eth0 proto static");
    agent.complains("node-not-reached");
}

#[test]
fn the_mtu_is_that_of_the_way_to_the_other_nodes() {
    let node = Node::new();
    // BGP to the host: its address is on `lo`, and routes say by which link the others
    // are reached.
    ip("address delete 192.0.2.1/24 dev eth0");
    ip("address add 192.0.2.1/32 dev lo");
    ip("address add 198.51.100.1/24 dev eth0");
    ip("link set eth0 mtu 1400");
    ip("route add 192.0.2.0/24 via 198.51.100.9");
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1350");
    assert!(ip("link show tweed.1").contains("mtu 1350"));
    assert_eq!(agent.metric("tweed_conflist_writes_total"), 1);

    ip("route replace 192.0.2.0/24 via 198.51.100.9 mtu 1300");
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1250");
    ip("link set eth0 mtu 1200");
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1150");

    // A routing daemon that restarts takes its routes along: pods that are added
    // meanwhile must not get another MTU.
    let writes = agent.metric("tweed_conflist_writes_total");
    ip("route delete 192.0.2.0/24");
    agent.passes();
    assert!(ip("link show tweed.1").contains("mtu 1150"));
    assert_eq!(agent.metric("tweed_conflist_writes_total"), writes);
    ip("route add 192.0.2.0/24 via 198.51.100.9 mtu 1190");
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1140");

    // Without other nodes it is the default route that says so.
    ip("route add default via 198.51.100.9 mtu 1100");
    node.list(1..=1);
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1050");
    ip("route delete default");
    agent.passes();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1050");
}

/// A router that tunnels, as on a line with PPPoE, advertises what hosts may send by IPv6,
/// and the kernel keeps it beside the link's own MTU.
#[test]
fn over_ipv6_the_mtu_is_at_most_what_the_router_advertises() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let mtu = "/proc/sys/net/ipv6/conf/eth0/mtu";
    std::fs::write(mtu, "1492").unwrap();
    let agent = node.start(&["--underlay-family", "ipv6"]);
    agent.ready();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1422");
    assert!(ip("link show tweed.1").contains("mtu 1422"));
    std::fs::write(mtu, "1460").unwrap();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1390");
    // Without other nodes, and without a default route, the link itself says so.
    node.write_nodes(&families::node(1));
    agent.passes();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1390");
    agent.stop();

    let agent = node.start(&["--underlay-family", "ipv4"]);
    agent.ready();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1450");
}

/// Neither invents an MTU: an agent that starts before the routing daemon, nor one that
/// is restarted while that is away.
#[test]
fn an_agent_that_starts_without_any_way_takes_no_mtu_of_its_own() {
    let node = Node::new();
    ip("address delete 192.0.2.1/24 dev eth0");
    ip("address add 192.0.2.1/32 dev lo");
    ip("address add 198.51.100.1/24 dev eth0");
    ip("link set eth0 mtu 1400");
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.complains("mtu-unknown");
    agent.passes();
    assert!(!node.path("net.d/10-tweed.conflist").exists());
    assert!(!node.path("run/ready").exists());
    assert_eq!(ip("link show type vxlan"), "");
    ip("route add 192.0.2.0/24 via 198.51.100.9");
    agent.ready();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1350");
    drop(agent);

    ip("route delete 192.0.2.0/24");
    for last in [false, true] {
        let agent = node.start(&[]);
        agent.serves();
        let said = agent.complains("no-way-to-nodes");
        assert!(said.contains("192.0.2.2"), "{said}");
        agent.passes();
        assert!(ip("link show tweed.1").contains("mtu 1350"));
        node.publishes("run/agent.json", "\"mtu\": 1350");
        assert_eq!(agent.metric("tweed_conflist_writes_total"), 0);
        if last {
            ip("route add default via 198.51.100.9");
            agent.ready();
        }
    }
}

#[test]
fn an_address_past_its_preferred_lifetime_is_as_good_as_any() {
    for (flags, deprecate) in [
        (
            &[][..],
            "-4 address change 192.0.2.1/24 dev eth0 preferred_lft 0",
        ),
        (
            &["--underlay-family", "ipv6"],
            "-6 address change 2001:db8::1/64 dev eth0 preferred_lft 0",
        ),
    ] {
        let node = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        ip(deprecate);
        assert!(ip("address show dev eth0").contains("deprecated"));
        node.write_nodes(&[families::node(1), families::node(2)].concat());
        let agent = node.start(flags);
        agent.ready();
        node.publishes("run/ready", "n1");
        agent.passes();
        assert_eq!(agent.problems(), [""; 0]);
    }
}

/// The kernel takes any bytes for an alias, a label and another name.
#[test]
fn texts_of_others_that_are_no_utf8_hinder_nothing() {
    let node = Node::new();
    node.list(1..=2);
    let named = |arguments: &str, text: &[u8]| {
        let mut ip = Command::new("ip");
        ip.args(arguments.split(' ')).arg(OsStr::from_bytes(text));
        assert!(ip.status().unwrap().success(), "{arguments}");
    };
    named("link set eth0 alias", b"B\xfcro");
    ip("address delete 192.0.2.1/24 dev eth0");
    named("address add 192.0.2.1/24 dev eth0 label", b"eth0:B\xfcro");
    let agent = node.start(&[]);
    agent.ready();
    named("link set wire alias", b"\xff");
    named("link property add dev wire altname", b"l\xe4n");
    agent.passes();
    assert_eq!(agent.problems(), [""; 0]);
    node.list(1..=3);
    eventually(|| match ip("route show 10.0.3.0/24") {
        route if route.contains("dev tweed.1") => Ok(()),
        route => Err(route),
    });
    agent.ready();
}

/// The other end of the cable knows another machine at the node's addresses, and does
/// not ask again.
#[test]
fn others_are_told_of_the_own_addresses_once_in_a_boot_and_of_new_ones() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let own = ["192.0.2.1", "2001:db8::1"];
    own.iter().for_each(believe_old_mac);
    let flags = ["--backend", "direct"];
    let agent = node.start(&flags);
    agent.ready();
    own.iter().for_each(|address| learns(address));
    agent.stop();

    own.iter().for_each(believe_old_mac);
    let agent = node.start(&flags);
    agent.ready();
    agent.passes();
    for address in own {
        let known = known_mac(address);
        assert_eq!(
            known.as_deref(),
            Some(OLD_MAC),
            "a restart announces nothing"
        );
    }
    believe_old_mac(&"192.0.2.99");
    node.moves_to("192.0.2.99");
    learns("192.0.2.99");
}

fn believe_old_mac(address: &&str) {
    ip(&format!(
        "neighbour replace {address} lladdr {OLD_MAC} dev wire nud stale"
    ));
}

/// Waits until the other end knows the node's MAC.
fn learns(address: &str) {
    let link = ip("-o link show dev eth0");
    let rest = link.split("link/ether ").nth(1).unwrap();
    let mac = rest.split_whitespace().next();
    eventually(|| match known_mac(address) {
        known if known.as_deref() == mac => Ok(()),
        known => Err(format!("{address} is {known:?}")),
    });
}

fn known_mac(address: &str) -> Option<String> {
    let entry = ip(&format!("neighbour show {address} dev wire"));
    let mac = entry.split("lladdr ").nth(1)?.split_whitespace().next();
    mac.map(ToOwned::to_owned)
}
