//! What a pod may not send, beside what it may.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_component::drops::DropReason;

use crate::wires::{Server, Wires, receive, ruleset, send, socket};

/// Sends with a false source, then with the right one: only the second comes.
fn refused(w: &Wires, false_source: &str, right_source: &str, server: &Server, address: &str) {
    let before = w.dropped(DropReason::SpoofedSource);
    send(&w.pod, false_source, address, "spoofed");
    send(&w.pod, right_source, address, "right");
    let (text, _) = server.next();
    assert_eq!(text, "right", "{false_source} got through to {address}");
    assert_eq!(w.dropped(DropReason::SpoofedSource), before + 1);
}

#[test]
fn only_the_own_address_whatever_rp_filter_says() {
    let w = Wires::new(&ruleset());
    // The neighbour's, the own node's, a node's, a remote pod's, the own
    // node's .0, one of nobody in the own CIDR, one of the world.
    let v4 = [
        "10.244.1.6",
        "192.0.2.1",
        "192.0.2.2",
        "10.244.2.5",
        "10.244.1.0",
        "10.244.1.99",
        "198.51.100.2",
        "203.0.113.9",
    ];
    let v6 = [
        "fd00:0:0:1::6",
        "2001:db8::1",
        "2001:db8::2",
        "fd00:0:0:2::5",
        "fd00:0:0:1::99",
        "2001:db8:1::2",
    ];
    for address in v4 {
        w.pod.sh(format!("ip addr add {address}/32 dev lo"));
    }
    for address in v6 {
        w.pod.sh(format!("ip addr add {address}/128 dev lo"));
    }
    let to = [
        (&w.node, "192.0.2.1"),
        (&w.neighbour, "10.244.1.6"),
        (&w.peer, "192.0.2.2"),
        (&w.remote_pod, "10.244.2.5"),
        (&w.world, "198.51.100.2"),
    ];
    for filter in [0, 1, 2] {
        w.node.sh(format!(
            "for c in all default twa; do echo {filter} > /proc/sys/net/ipv4/conf/$c/rp_filter; done"
        ));
        // Strict filtering would drop these by itself, before or after.
        let before = w.dropped(DropReason::SpoofedSource);
        for (host, address) in to {
            let server = Server::new(host, &format!("{address}:7"));
            for source in v4 {
                if source == address {
                    continue; // The pod would speak to itself.
                }
                w.pod.sh(format!(
                    "ip addr del {address}/32 dev lo 2>/dev/null || true"
                ));
                refused(
                    &w,
                    &format!("{source}:0"),
                    "10.244.1.5:0",
                    &server,
                    &format!("{address}:7"),
                );
            }
            if v4.contains(&address) {
                w.pod.sh(format!("ip addr add {address}/32 dev lo"));
            }
        }
        assert!(w.dropped(DropReason::SpoofedSource) > before);
    }
    let server = Server::new(&w.world, "[2001:db8:1::2]:7");
    w.pod.sh("ip addr del 2001:db8:1::2/128 dev lo");
    for source in v6.into_iter().filter(|source| *source != "2001:db8:1::2") {
        refused(
            &w,
            &format!("[{source}]:0"),
            "[fd00:0:0:1::5]:0",
            &server,
            "[2001:db8:1::2]:7",
        );
    }
}

/// The pod's own nft makes of an echo request what is to be sent.
fn refused_icmp(disguise: &str, ping: &str, reason: DropReason) {
    let w = Wires::new(&ruleset());
    let before = w.dropped(reason);
    w.pod.sh(format!("{ping} >/dev/null"));
    assert_eq!(
        w.dropped(reason),
        before,
        "an honest echo request is refused"
    );
    w.pod.sh(format!(
        "nft add table inet disguise
         nft add chain inet disguise out '{{ type filter hook output priority 0; }}'
         nft add rule inet disguise out {disguise}"
    ));
    w.pod.sh(format!("{ping} >/dev/null || true"));
    assert_eq!(w.dropped(reason), before + 1, "{disguise}");
}

#[test]
fn redirects() {
    refused_icmp(
        "icmp type echo-request icmp type set 5",
        "ping -c 1 -W 10 192.0.2.1",
        DropReason::Redirect,
    );
    refused_icmp(
        "icmpv6 type echo-request icmpv6 type set 137",
        "ping -c 1 -W 10 2001:db8::1",
        DropReason::Redirect,
    );
}

#[test]
fn router_advertisements() {
    refused_icmp(
        "icmpv6 type echo-request icmpv6 type set nd-router-advert",
        "ping -c 1 -W 10 2001:db8::1",
        DropReason::RouterAdvertisement,
    );
}

#[test]
fn no_source_at_all() {
    refused_icmp(
        "icmp type echo-request ip daddr set 255.255.255.255 ip saddr set 0.0.0.0",
        "ping -c 1 -W 10 192.0.2.1",
        DropReason::SpoofedSource,
    );
}

/// What a pod without a link-local address sends of itself: reports of the
/// groups that it is in.
#[test]
fn no_ipv6_source_at_all() {
    let w = Wires::new(&ruleset());
    // On a busy machine the kernel has already found that its address is nobody else's.
    w.pod.sh("ip -6 addr flush dev eth0 scope link");
    let before = w.dropped(DropReason::LinkLocalSource);
    w.pod.sh("ip addr add ff02::7:7 dev eth0 autojoin");
    let deadline = Instant::now() + Duration::from_secs(60);
    while w.dropped(DropReason::LinkLocalSource) == before {
        assert!(Instant::now() < deadline, "no report was refused");
        sleep(Duration::from_millis(20));
    }
}

/// The rules look at a message's type before they look at the protocol; in UDP
/// the high byte of the source's port stands there.
#[test]
fn a_port_is_not_taken_for_the_type_of_a_message() {
    let w = Wires::new(&ruleset());
    let to = [
        ("10.244.1.5", "192.0.2.1:7"),
        ("[fd00:0:0:1::5]", "[2001:db8::1]:7"),
    ];
    for (source, address) in to {
        let server = Server::new(&w.node, address);
        for kind in [5_u16, 134, 137] {
            let text = format!("from port {} of {source}", kind << 8);
            send(&w.pod, &format!("{source}:{}", kind << 8), address, &text);
            assert_eq!(server.next().0, text);
        }
    }
}

/// The plugin portmap switches `route_localnet` on for the link of a pod with a
/// hostPort, and from then on the kernel takes what comes from there to 127.0.0.1.
#[test]
fn the_nodes_loopback() {
    let w = Wires::new(&ruleset());
    w.node
        .sh("echo 1 > /proc/sys/net/ipv4/conf/twa/route_localnet");
    w.pod.sh("nft add table inet disguise
         nft add chain inet disguise out '{ type filter hook postrouting priority 0; }'
         nft add rule inet disguise out udp dport 7 ip daddr set 127.0.0.1
         nft add rule inet disguise out udp dport 8 ip daddr set 127.255.255.254
         nft add rule inet disguise out udp dport 7 ip6 daddr set ::1");
    let honest = Server::new(&w.node, "192.0.2.1:9");
    let pairs = [
        ("10.244.1.5:0", "127.0.0.1:7", "192.0.2.1:7", true),
        ("10.244.1.5:0", "127.255.255.254:8", "192.0.2.1:8", true),
        // The kernel itself drops it.
        ("[fd00:0:0:1::5]:0", "[::1]:7", "[2001:db8::1]:7", false),
    ];
    for (source, listens, sent_to, arrives_without_the_table) in pairs {
        let server = Server::new(&w.node, listens);
        send(&w.pod, source, sent_to, "refused");
        send(&w.pod, "10.244.1.5:0", "192.0.2.1:9", "honest");
        assert_eq!(honest.next().0, "honest");
        w.node.sh("nft delete table inet tweed");
        send(&w.pod, source, sent_to, "without the table");
        if arrives_without_the_table {
            assert_eq!(server.next().0, "without the table", "{listens}");
        }
        w.reconcile(&ruleset());
        send(
            &w.node,
            &listens.replace(":7", ":0").replace(":8", ":0"),
            listens,
            "local",
        );
        assert_eq!(server.next().0, "local", "{listens}");
    }
    assert_eq!(
        w.dropped(DropReason::LoopbackDestination),
        0,
        "the table is new"
    );
    send(&w.pod, "10.244.1.5:0", "192.0.2.1:7", "counted");
    assert_eq!(w.dropped(DropReason::LoopbackDestination), 1);
}

/// A hostPort as portmap makes it is reached from everywhere: the node's loopback,
/// the pod itself, its neighbour, other nodes, the world.
#[test]
fn a_host_port() {
    let w = Wires::new(&ruleset());
    w.node
        .sh(r"echo 1 > /proc/sys/net/ipv4/conf/twa/route_localnet
        nft -f - <<'E'
table ip portmap {
    chain prerouting {
        type nat hook prerouting priority -100; policy accept;
        fib daddr type local udp dport 8080 dnat to 10.244.1.5:80
    }
    chain output {
        type nat hook output priority -100; policy accept;
        fib daddr type local udp dport 8080 dnat to 10.244.1.5:80
    }
    chain postrouting {
        type nat hook postrouting priority 99; policy accept;
        ip saddr { 10.244.1.5, 127.0.0.1 } ip daddr 10.244.1.5 udp dport 80 masquerade
    }
}
E");
    let server = Server::new(&w.pod, "10.244.1.5:80");
    for (host, source, address) in [
        (&w.node, "127.0.0.1:0", "127.0.0.1:8080"),
        (&w.node, "192.0.2.1:0", "192.0.2.1:8080"),
        (&w.pod, "10.244.1.5:0", "192.0.2.1:8080"),
        (&w.neighbour, "10.244.1.6:0", "192.0.2.1:8080"),
        (&w.peer, "192.0.2.2:0", "192.0.2.1:8080"),
        (&w.world, "198.51.100.2:0", "198.51.100.1:8080"),
    ] {
        let client = socket(host, source);
        client.send_to(b"ping", address).unwrap();
        let (text, from) = server.next();
        assert_eq!(text, "ping", "{address}");
        server.answer("pong", from);
        let mut buffer = [0; 16];
        let (length, from) = receive(&client, &mut buffer);
        assert_eq!(&buffer[..length], b"pong");
        assert_eq!(from.to_string(), address);
    }
}

/// Rules of others hide the pod's route: of a table that comes before the main one,
/// or for a source of the node's, which is how a node with several uplinks is set up.
#[test]
fn the_own_address_where_routing_rules_hide_the_pods_route() {
    let mut ruleset = ruleset();
    let w = Wires::new(&ruleset);
    let index = w.node.sh("ip -o link show twa | cut -d: -f1");
    let index: u32 = index.trim().parse().unwrap();
    for address in ["10.244.1.5", "fd00:0:0:1::5"] {
        ruleset.pod_links.insert((address.parse().unwrap(), index));
    }
    w.node.sh("ip route add default via 192.0.2.2 table 101
        ip -6 route add default via 2001:db8::2 table 101");
    w.pod
        .sh("ip addr add 10.244.1.6/32 dev lo; ip addr add fd00:0:0:1::6/128 dev lo nodad");
    let pairs = [
        ("10.244.1.5:0", "10.244.1.6:0", "192.0.2.1:7"),
        ("[fd00:0:0:1::5]:0", "[fd00:0:0:1::6]:0", "[2001:db8::1]:7"),
    ];
    for rule in ["from all", "from 192.0.2.1", "from 2001:db8::1"] {
        for (own, others, address) in pairs {
            let version = if address.starts_with('[') { "-6" } else { "-4" };
            let fits = match rule {
                "from 192.0.2.1" => version == "-4",
                "from 2001:db8::1" => version == "-6",
                _ => true,
            };
            if !fits {
                continue;
            }
            w.node.sh(format!(
                "ip {version} rule add {rule} lookup 101 priority 5270"
            ));
            let server = Server::new(&w.node, address);
            let dropped = || w.dropped(DropReason::SpoofedSource);
            w.reconcile(&crate::wires::ruleset());
            let before = dropped();
            send(&w.pod, own, address, "hidden");
            assert_eq!(dropped(), before + 1, "{rule} does not hide the route");
            w.reconcile(&ruleset);
            send(&w.pod, others, address, "spoofed");
            send(&w.pod, own, address, "right");
            assert_eq!(server.next().0, "right", "{rule}");
            assert_eq!(dropped(), before + 2, "{rule}");
            w.node.sh(format!("ip {version} rule del priority 5270"));
        }
    }
}

#[test]
fn link_local_sources() {
    let w = Wires::new(&ruleset());
    w.node.sh("ip -6 addr add fe80::1/64 dev twa nodad");
    w.pod
        .sh("ip -6 addr add fe80::66/64 dev eth0 nodad; ip -6 addr add fe80::67/128 dev lo nodad");
    let server = Server::new(&w.node, "[2001:db8::1]:7");
    let reason = DropReason::LinkLocalSource;
    let index = w.pod.sh("ip -o link show eth0 | cut -d: -f1");
    let index = index.trim();
    let before = w.dropped(reason);
    send(
        &w.pod,
        &format!("[fe80::66%{index}]:0"),
        "[2001:db8::1]:7",
        "link-local",
    );
    send(&w.pod, "[fd00:0:0:1::5]:0", "[2001:db8::1]:7", "right");
    assert_eq!(server.next().0, "right");
    assert!(w.dropped(reason) > before);
}
