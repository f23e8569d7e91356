//! VXLAN is taken from known nodes only; no pod speaks it to a node. Every
//! forged packet is also sent without the table, to show that it would arrive.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tweed_component::drops::DropReason;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::Ruleset;

use crate::lab::Host;
use crate::wires::{Server, Wires, receive, ruleset, send, socket, sources};

/// A VXLAN payload: an Ethernet frame for the device of node `number` with a
/// UDP packet to port 7 of `to`, from a pod of the other node.
fn forged(vni: u32, number: u8, to: Ipv4Addr, text: &str) -> Vec<u8> {
    let source = Ipv4Addr::new(10, 244, 3 - number, 5);
    frame(vni, number, 0x0800, &udp_in_ipv4(source, to, text))
}

/// An Ethernet frame in VXLAN, from the device of one node to that of node `number`.
pub fn frame(vni: u32, number: u8, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![8, 0, 0, 0];
    frame.extend((vni << 8).to_be_bytes());
    frame.extend([2, 0, 0, 0, 1, number, 2, 0, 0, 0, 1, 3 - number]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

/// A UDP packet to port 7.
pub fn udp(text: &str, checksum: u16) -> Vec<u8> {
    let mut udp = Vec::new();
    for field in [4000, 7, 8 + text.len() as u16, checksum] {
        udp.extend(u16::to_be_bytes(field));
    }
    udp.extend(text.as_bytes());
    udp
}

pub fn udp_in_ipv4(source: Ipv4Addr, to: Ipv4Addr, text: &str) -> Vec<u8> {
    let udp = udp(text, 0);
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(source.octets());
    ip.extend(to.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(udp);
    ip
}

/// RFC 1071.
pub fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// One way to bring a forged packet in.
struct Attempt {
    what: &'static str,
    from: fn(&Wires) -> &Host,
    source: &'static str,
    to: &'static str,
    /// The node that it is for; the victim is that node's pod.
    node: u8,
}

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        what: "from a stranger",
        from: |w| &w.world,
        source: "198.51.100.2:0",
        to: "192.0.2.1:8472",
        node: 1,
    },
    Attempt {
        what: "from a stranger to another address of the node",
        from: |w| &w.world,
        source: "198.51.100.2:0",
        to: "198.51.100.1:8472",
        node: 1,
    },
    Attempt {
        what: "from a stranger to everybody on the link",
        from: |w| &w.world,
        source: "198.51.100.2:0",
        to: "198.51.100.255:8472",
        node: 1,
    },
    Attempt {
        what: "from a known node to an address that no peer knows",
        from: |w| &w.peer,
        source: "192.0.2.2:0",
        to: "198.51.100.1:8472",
        node: 1,
    },
    Attempt {
        what: "from a known node through DNAT (it may have masqueraded a pod)",
        from: |w| &w.peer,
        source: "192.0.2.2:0",
        to: "192.0.2.1:9001",
        node: 1,
    },
    Attempt {
        what: "from a pod to its node",
        from: |w| &w.pod,
        source: "10.244.1.5:0",
        to: "192.0.2.1:8472",
        node: 1,
    },
    Attempt {
        what: "from a pod to its node through DNAT",
        from: |w| &w.pod,
        source: "10.244.1.5:0",
        to: "192.0.2.1:9001",
        node: 1,
    },
    Attempt {
        what: "from a pod to another node",
        from: |w| &w.pod,
        source: "10.244.1.5:0",
        to: "192.0.2.2:8472",
        node: 2,
    },
    Attempt {
        what: "from a pod to another node through DNAT",
        from: |w| &w.pod,
        source: "10.244.1.5:0",
        to: "192.0.2.1:9002",
        node: 2,
    },
    Attempt {
        what: "from a stranger to another node through DNAT",
        from: |w| &w.world,
        source: "198.51.100.2:0",
        to: "198.51.100.1:9002",
        node: 2,
    },
];

const SERVICES: &str = "nft -f - <<'E'
table ip services {
    chain services {
        type nat hook prerouting priority -100; policy accept;
        udp dport 9001 dnat to 192.0.2.1:8472
        udp dport 9002 dnat to 192.0.2.2:8472
    }
}
E";

pub fn wires() -> Wires {
    let w = Wires::new(&ruleset());
    w.node.sh(SERVICES);
    w
}

#[test]
fn forged_packets_do_not_arrive() {
    let w = wires();
    let pods = [
        (
            &w.neighbour,
            Ipv4Addr::new(10, 244, 1, 6),
            &w.remote_pod,
            "10.244.2.5:0",
        ),
        (
            &w.remote_pod,
            Ipv4Addr::new(10, 244, 2, 5),
            &w.pod,
            "10.244.1.5:0",
        ),
    ];
    for attempt in ATTEMPTS {
        let (victim, address, honest, honest_source) = pods[usize::from(attempt.node) - 1];
        let server = Server::new(victim, &format!("{address}:7"));
        let packet = forged(1, attempt.node, address, "forged");
        send((attempt.from)(&w), attempt.source, attempt.to, &packet);
        // The overlay itself is open.
        send(honest, honest_source, &format!("{address}:7"), "honest");
        assert_eq!(server.next().0, "honest", "{} got through", attempt.what);

        w.node.sh("nft delete table inet tweed");
        send((attempt.from)(&w), attempt.source, attempt.to, &packet);
        assert_eq!(server.next().0, "forged", "{}", attempt.what);
        w.reconcile(&ruleset());
    }
}

/// What IPVS sends on for a Service passes the hook output, and neither `forward` nor
/// `input` with its new destination. A copy takes the same way, on every kernel.
#[test]
fn a_pods_packet_that_the_node_sends_on_by_the_hook_output() {
    let w = wires();
    w.node.sh("nft add table ip copies
         nft add chain ip copies in '{ type filter hook prerouting priority -290; }'
         nft add rule ip copies in iifname twa udp dport 8472 dup to 192.0.2.2 device eth0");
    let server = Server::new(&w.remote_pod, "10.244.2.5:7");
    let address = Ipv4Addr::new(10, 244, 2, 5);
    let packet = |text: &str| forged(1, 2, address, text);
    send(&w.pod, "10.244.1.5:0", "192.0.2.2:8472", packet("forged"));
    send(&w.neighbour, "10.244.1.6:0", "10.244.2.5:7", "honest");
    assert_eq!(server.next().0, "honest");
    assert_eq!(
        w.dropped(DropReason::VxlanFromPod),
        2,
        "the packet and its copy"
    );
    // An overlay between pods is let through, this way too.
    let nested = Server::new(&w.remote_pod, "10.244.2.5:8472");
    w.node.sh("nft flush chain ip copies in
         nft add rule ip copies in iifname twa udp dport 8472 dup to 10.244.2.0 device tweed.1");
    send(&w.pod, "10.244.1.5:0", "10.244.2.5:8472", packet("nested"));
    for _ in ["the packet", "its copy"] {
        assert!(nested.next().0.ends_with("nested"));
    }

    w.node.sh("nft delete table inet tweed
         nft flush chain ip copies in
         nft add rule ip copies in iifname twa udp dport 8472 dup to 192.0.2.2 device eth0");
    send(&w.pod, "10.244.1.5:0", "192.0.2.2:8472", packet("open"));
    assert_eq!(server.next().0, "open");
}

/// The overlay between the nodes' IPv6 addresses.
fn over_ipv6() -> Wires {
    let w = Wires::new(&Ruleset {
        vxlan_sources: sources("2001:db8::2", &["10.244.2.0/24"]),
        ..ruleset()
    });
    for (node, own, peer) in [(&w.node, 1, 2), (&w.peer, 2, 1)] {
        node.sh(format!(
            "ip link del tweed.1
             ip link add tweed.1 address 02:00:00:00:01:{own:02x} type vxlan id 1 dstport 8472 local 2001:db8::{own} nolearning
             ip link set tweed.1 up
             ip addr add 10.244.{own}.0/32 dev tweed.1
             bridge fdb append 02:00:00:00:01:{peer:02x} dev tweed.1 dst 2001:db8::{peer}
             ip neigh add 10.244.{peer}.0 lladdr 02:00:00:00:01:{peer:02x} dev tweed.1 nud permanent
             ip route add 10.244.{peer}.0/24 via 10.244.{peer}.0 dev tweed.1 onlink"
        ));
    }
    w
}

/// The node's own packets of the overlay are told from such by conntrack's view of
/// them, over IPv6 too.
#[test]
fn the_overlay_itself_over_ipv6() {
    let w = over_ipv6();
    let server = Server::new(&w.remote_pod, "10.244.2.5:7");
    let client = crate::wires::socket(&w.pod, "10.244.1.5:0");
    // The second packet belongs to a flow that conntrack knows.
    for text in ["first", "second"] {
        client.send_to(text.as_bytes(), "10.244.2.5:7").unwrap();
        let (said, from) = server.next();
        assert_eq!(said, text);
        server.answer("pong", from);
        receive(&client, &mut [0; 16]);
    }
    let list = w
        .node
        .sh("conntrack -L -f ipv6 -p udp --orig-port-dst 8472 2>/dev/null");
    assert_eq!(list.lines().count(), 0, "{list}");
}

/// A chain that is made later comes before the table's at the same priority, and what it
/// does with the node's own packets does not make them a stranger's.
#[test]
fn the_overlay_passes_whatever_others_do_with_it_before_conntrack() {
    for w in [wires(), over_ipv6()] {
        let server = Server::new(&w.remote_pod, "10.244.2.5:7");
        w.node.sh("nft add table inet tuning
             nft add chain inet tuning out '{ type filter hook output priority raw; }'");
        for rule in ["notrack", "ct zone set 5"] {
            w.node.sh(format!(
                "nft flush chain inet tuning out
                 nft add rule inet tuning out udp dport 8472 {rule}"
            ));
            send(&w.pod, "10.244.1.5:0", "10.244.2.5:7", rule);
            assert_eq!(server.next().0, rule);
        }
    }
}

/// For a moment the chains of the old table and of the new one see the same packets.
#[test]
fn no_packet_is_lost_while_the_table_is_replaced() {
    for (w, pairs) in [
        (wires(), ruleset().vxlan_sources),
        (over_ipv6(), sources("2001:db8::2", &["10.244.2.0/24"])),
    ] {
        let skeletons = [Masquerade::Random, Masquerade::RandomFully].map(|masquerade| Ruleset {
            masquerade: Some(masquerade),
            vxlan_sources: pairs.clone(),
            ..ruleset()
        });
        let answered = thread::scope(|scope| {
            let ping = scope.spawn(|| w.pod.sh("ping -q -i 0.001 -c 1500 -W 10 10.244.2.5"));
            let mut replacements = skeletons.iter().cycle();
            while !ping.is_finished() {
                w.reconcile(replacements.next().unwrap());
            }
            ping.join().unwrap()
        });
        assert!(answered.contains(" 1500 received"), "{answered}");
    }
}

#[test]
fn known_nodes_are_taken_from_and_no_longer_when_they_go() {
    let w = wires();
    let server = Server::new(&w.neighbour, "10.244.1.6:7");
    let packet = forged(1, 1, Ipv4Addr::new(10, 244, 1, 6), "from the peer");
    send(&w.peer, "192.0.2.2:0", "192.0.2.1:8472", &packet);
    assert_eq!(server.next().0, "from the peer");
    w.reconcile(&Ruleset {
        vxlan_sources: Default::default(),
        ..ruleset()
    });
    send(&w.peer, "192.0.2.2:0", "192.0.2.1:8472", &packet);
    send(&w.pod, "10.244.1.5:0", "10.244.1.6:7", "honest");
    assert_eq!(server.next().0, "honest");
    assert_eq!(w.dropped(DropReason::VxlanInnerSource), 1);
    assert_eq!(w.dropped(DropReason::VxlanFromStranger), 0);
}

#[test]
fn another_vni_on_the_port_is_left_alone() {
    let w = wires();
    w.node.sh(
        "ip link add other address 02:00:00:00:01:01 type vxlan id 7 dstport 8472 nolearning
         ip link set other up",
    );
    let server = Server::new(&w.neighbour, "10.244.1.6:7");
    let packet = forged(7, 1, Ipv4Addr::new(10, 244, 1, 6), "another overlay");
    send(&w.world, "198.51.100.2:0", "192.0.2.1:8472", &packet);
    assert_eq!(server.next().0, "another overlay");
    // But no pod speaks VXLAN to its node, whichever.
    send(&w.pod, "10.244.1.5:0", "192.0.2.1:8472", &packet);
    send(&w.pod, "10.244.1.5:0", "10.244.1.6:7", "honest");
    assert_eq!(server.next().0, "honest");
    assert_eq!(w.dropped(DropReason::VxlanFromPod), 1);
}

#[test]
fn an_overlay_between_pods_passes_through() {
    let w = wires();
    for (host, address) in [
        (&w.neighbour, "10.244.1.6:8472"),
        (&w.remote_pod, "10.244.2.5:8472"),
    ] {
        let server = Server::new(host, address);
        let packet = forged(1, 1, Ipv4Addr::new(10, 0, 0, 1), "nested");
        send(&w.pod, "10.244.1.5:0", address, &packet);
        assert!(server.next().0.ends_with("nested"), "{address}");
    }
}

/// The rules look at the port before they look at the protocol.
#[test]
fn tcp_to_the_same_port_passes() {
    let w = wires();
    for (host, address) in [
        (&w.node, "192.0.2.1:8472"),
        (&w.peer, "192.0.2.2:8472"),
        (&w.neighbour, "10.244.1.6:8472"),
    ] {
        let address: SocketAddr = address.parse().unwrap();
        let listener = host.bind(move || TcpListener::bind(address));
        let connect = move || TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let stream = w.pod.run(connect);
        assert!(stream.is_ok(), "{address}: {stream:?}");
        drop(listener);
    }
}

/// A node masquerades flows to pods of others, one of 64,000 with this source port. The answer
/// to it is no VXLAN, nor is what a pod sends with another VNI.
#[test]
fn answers_to_a_flow_that_a_node_has_masqueraded_pass() {
    let w = wires();
    for (family, cidr, gateway, source, server) in [
        (
            "ip",
            "10.244.1.0/24",
            "192.0.2.1",
            "192.0.2.2",
            "10.244.1.5:7",
        ),
        (
            "ip6",
            "fd00:0:0:1::/64",
            "2001:db8::1",
            "[2001:db8::2]",
            "[fd00:0:0:1::5]:7",
        ),
    ] {
        w.peer.sh(format!(
            "ip route replace {cidr} via {gateway}
             nft 'table {family} t {{ chain c {{ type nat hook postrouting priority 100; \
                udp dport 7 snat to {source}:8472; }}; }}'"
        ));
        let pod = Server::new(&w.pod, server);
        let client = socket(&w.peer, &format!("{source}:0"));
        client.send_to(b"question", server).unwrap();
        let (_, from) = pod.next();
        assert_eq!(from.port(), 8472);
        pod.answer("answer", from);
        let mut buffer = [0; 16];
        let (length, _) = receive(&client, &mut buffer);
        assert_eq!(&buffer[..length], b"answer");
    }
    let forged = |vni| forged(vni, 2, Ipv4Addr::new(10, 244, 2, 5), "x");
    send(&w.pod, "10.244.1.5:0", "192.0.2.2:8472", forged(2));
    assert_eq!(w.dropped(DropReason::VxlanFromPod), 0);
    send(&w.pod, "10.244.1.5:0", "192.0.2.2:8472", forged(1));
    assert_eq!(w.dropped(DropReason::VxlanFromPod), 1);
}

/// A header must not hide in fragments: one packet is counted, not several.
#[test]
fn fragments_are_seen_as_one_packet() {
    let w = wires();
    w.world
        .sh("ip link set eth0 mtu 72; ip -6 route flush all 2>/dev/null || true");
    let packet = forged(1, 1, Ipv4Addr::new(10, 244, 1, 6), &"x".repeat(200));
    send(&w.world, "198.51.100.2:0", "192.0.2.1:8472", &packet);
    assert_eq!(w.dropped(DropReason::VxlanFromStranger), 1);
}

#[test]
fn ipv6_outside_is_filtered_alike() {
    let w = wires();
    let packet = forged(1, 1, Ipv4Addr::new(10, 244, 1, 6), "forged");
    send(&w.world, "[2001:db8:1::2]:0", "[2001:db8::1]:8472", &packet);
    assert_eq!(w.dropped(DropReason::VxlanFromStranger), 1);
    send(&w.pod, "[fd00:0:0:1::5]:0", "[2001:db8::2]:8472", &packet);
    assert_eq!(w.dropped(DropReason::VxlanFromPod), 1);
    w.reconcile(&Ruleset {
        vxlan_sources: sources("2001:db8:1::2", &["10.244.2.0/24"]),
        ..ruleset()
    });
    send(&w.world, "[2001:db8:1::2]:0", "[2001:db8::1]:8472", &packet);
    assert_eq!(w.dropped(DropReason::VxlanFromStranger), 1);
}
