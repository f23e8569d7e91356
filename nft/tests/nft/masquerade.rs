//! What source a server sees, in each case of the masquerading rules.

use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::Ruleset;

use crate::lab::Host;
use crate::multicast;
use crate::wires::{Server, Wires, receive, ruleset, send, socket};

/// The source's address that a server at `server` on `at` sees when `from`
/// speaks with `source`.
fn seen(from: &Host, source: &str, at: &Host, server: &str) -> String {
    let listener = Server::new(at, server);
    send(from, source, server, "hello");
    let (text, from) = listener.next();
    assert_eq!(text, "hello");
    from.ip().to_string()
}

#[test]
fn overlay_with_masquerading() {
    let w = Wires::new(&ruleset());
    let pod = |at: &Host, server: &str| seen(&w.pod, "10.244.1.5:0", at, server);
    let pod6 = |at: &Host, server: &str| seen(&w.pod, "[fd00:0:0:1::5]:0", at, server);
    // To the world and to other nodes: behind the node.
    assert_eq!(pod(&w.world, "198.51.100.2:7"), "198.51.100.1");
    assert_eq!(pod6(&w.world, "[2001:db8:1::2]:7"), "2001:db8:1::1");
    assert_eq!(pod(&w.peer, "192.0.2.2:7"), "192.0.2.1");
    assert_eq!(pod6(&w.peer, "[2001:db8::2]:7"), "2001:db8::1");
    // To pods and to the own node: as they are.
    assert_eq!(pod(&w.neighbour, "10.244.1.6:7"), "10.244.1.5");
    assert_eq!(pod6(&w.neighbour, "[fd00:0:0:1::6]:7"), "fd00:0:0:1::5");
    assert_eq!(pod(&w.remote_pod, "10.244.2.5:7"), "10.244.1.5");
    assert_eq!(pod6(&w.remote_pod, "[fd00:0:0:2::5]:7"), "fd00:0:0:1::5");
    assert_eq!(pod(&w.node, "192.0.2.1:7"), "10.244.1.5");
    assert_eq!(pod(&w.node, "198.51.100.1:7"), "10.244.1.5");
    // The node to pods: by itself, or with a source that would not come back.
    assert_eq!(
        seen(&w.node, "10.244.1.0:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.0"
    );
    assert_eq!(
        seen(&w.node, "192.0.2.1:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.0"
    );
    assert_eq!(
        seen(
            &w.node,
            "[2001:db8::1]:0",
            &w.remote_pod,
            "[fd00:0:0:2::5]:7"
        ),
        "fd00:0:0:1::"
    );
    assert_eq!(
        seen(&w.node, "192.0.2.1:0", &w.pod, "10.244.1.5:7"),
        "192.0.2.1"
    );
    // The node's own packets are none of our business.
    assert_eq!(
        seen(&w.node, "192.0.2.1:0", &w.peer, "192.0.2.2:7"),
        "192.0.2.1"
    );
    // Somebody who comes in to a pod is seen as who he is.
    assert_eq!(
        seen(&w.world, "198.51.100.2:0", &w.pod, "10.244.1.5:7"),
        "198.51.100.2"
    );
    // And to a remote pod only through this node.
    assert_eq!(
        seen(&w.world, "198.51.100.2:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.0"
    );
}

#[test]
fn an_answer_finds_its_way_back_through_masquerading() {
    let w = Wires::new(&ruleset());
    for (server_at, address) in [(&w.world, "198.51.100.2:7"), (&w.peer, "192.0.2.2:7")] {
        let server = Server::new(server_at, address);
        let client = socket(&w.pod, "10.244.1.5:0");
        client.send_to(b"ping", address).unwrap();
        let (_, from) = server.next();
        server.answer("pong", from);
        let mut buffer = [0; 16];
        let (length, from) = receive(&client, &mut buffer);
        assert_eq!(
            (&buffer[..length], from.to_string().as_str()),
            (&b"pong"[..], address)
        );
    }
}

#[test]
fn the_pure_model_leaves_pod_sources_towards_nodes() {
    let nodes = ruleset().node_addresses;
    let w = Wires::new(&Ruleset {
        masquerade_nodes: false,
        // A Node can list any address as its ExternalIP, here one of the world.
        node_addresses: (nodes.iter().copied())
            .chain(["198.51.100.2".parse().unwrap()])
            .collect(),
        underlay_addresses: nodes,
        ..ruleset()
    });
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.peer, "192.0.2.2:7"),
        "10.244.1.5"
    );
    assert_eq!(
        seen(&w.pod, "[fd00:0:0:1::5]:0", &w.peer, "[2001:db8::2]:7"),
        "fd00:0:0:1::5"
    );
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.world, "198.51.100.2:7"),
        "198.51.100.1"
    );
}

#[test]
fn ipv6_has_a_switch_of_its_own() {
    for masquerade_nodes in [true, false] {
        let w = Wires::new(&Ruleset {
            masquerade_ipv6: false,
            masquerade_nodes,
            underlay_addresses: ruleset().node_addresses,
            ..ruleset()
        });
        let pod6 = |at: &Host, server: &str| seen(&w.pod, "[fd00:0:0:1::5]:0", at, server);
        assert_eq!(pod6(&w.world, "[2001:db8:1::2]:7"), "fd00:0:0:1::5");
        assert_eq!(pod6(&w.remote_pod, "[fd00:0:0:2::5]:7"), "fd00:0:0:1::5");
        let to_node = ["fd00:0:0:1::5", "2001:db8::1"][usize::from(masquerade_nodes)];
        assert_eq!(pod6(&w.peer, "[2001:db8::2]:7"), to_node);
        assert_eq!(
            seen(&w.pod, "10.244.1.5:0", &w.world, "198.51.100.2:7"),
            "198.51.100.1"
        );
    }
}

#[test]
fn without_masquerading_the_world_sees_pods() {
    let w = Wires::new(&Ruleset {
        masquerade: Some(Masquerade::Off),
        ..ruleset()
    });
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.world, "198.51.100.2:7"),
        "10.244.1.5"
    );
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.peer, "192.0.2.2:7"),
        "10.244.1.5"
    );
    // What would not work at all otherwise.
    assert_eq!(
        seen(&w.node, "192.0.2.1:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.0"
    );
}

#[test]
fn source_ports_are_random_or_kept() {
    for (masquerade, kept) in [
        (Masquerade::RandomFully, false),
        (Masquerade::Random, false),
        (Masquerade::Off, true),
    ] {
        let w = Wires::new(&Ruleset {
            masquerade: Some(masquerade),
            ..ruleset()
        });
        let server = Server::new(&w.world, "198.51.100.2:7");
        let same = (40_000..40_016)
            .filter(|port| {
                send(&w.pod, &format!("10.244.1.5:{port}"), "198.51.100.2:7", "x");
                server.next().1.port() == *port
            })
            .count();
        assert_eq!(
            same == 16,
            kept,
            "{masquerade:?}: {same} of 16 kept their port"
        );
    }
}

/// Every outer packet that the peer gets has the node's own source.
#[test]
fn the_outer_packet_is_never_rewritten() {
    let w = Wires::new(&ruleset());
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.5"
    );
    let outer = w.peer.sh("nft add table inet look
         nft add chain inet look in '{ type filter hook prerouting priority -310; }'
         nft add rule inet look in udp dport 8472 ip saddr 192.0.2.1 counter
         nft add rule inet look in udp dport 8472 ip saddr != 192.0.2.1 counter comment stranger");
    assert_eq!(outer, "");
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.5"
    );
    let counts = w.peer.sh("nft list table inet look");
    assert!(
        counts.contains("packets 0 bytes 0 comment \"stranger\""),
        "{counts}"
    );
    assert_eq!(counts.matches("packets 0 ").count(), 1, "{counts}");
}

/// Rules of others that rewrite all that leaves the node do not meet it.
#[test]
fn nobody_elses_nat_gets_at_the_outer_packet() {
    let w = Wires::new(&ruleset());
    w.node.sh(r"nft -f - <<'E'
table ip others {
    chain postrouting {
        type nat hook postrouting priority 90; policy accept;
        oifname eth0 meta l4proto udp masquerade to :1024-1030
    }
}
E");
    w.peer.sh("nft add table inet look
         nft add chain inet look in '{ type filter hook prerouting priority -310; }'
         nft add rule inet look in udp dport 8472 udp sport 1024-1030 counter comment rewritten
         nft add rule inet look in udp dport 8472 counter comment wrapped");
    let server = Server::new(&w.peer, "192.0.2.2:7");
    send(&w.node, "192.0.2.1:40000", "192.0.2.2:7", "rewritten");
    assert!(
        (1024..=1030).contains(&server.next().1.port()),
        "others' NAT does not work at all"
    );
    assert_eq!(
        seen(&w.pod, "10.244.1.5:0", &w.remote_pod, "10.244.2.5:7"),
        "10.244.1.5"
    );
    let counts = w.peer.sh("nft list table inet look");
    assert!(
        counts.contains("packets 0 bytes 0 comment \"rewritten\""),
        "{counts}"
    );
    assert!(
        !counts.contains("packets 0 bytes 0 comment \"wrapped\""),
        "{counts}"
    );
}

/// The flow between two pods has an entry in conntrack; what wraps it has none,
/// on the way out and on the way in.
#[test]
fn a_flow_over_the_overlay_is_tracked_once() {
    let w = Wires::new(&ruleset());
    let tracked = |port: u16| {
        let list = w.node.sh(format!(
            "conntrack -L -p udp --orig-port-dst {port} 2>/dev/null"
        ));
        list.lines().count()
    };
    let server = Server::new(&w.remote_pod, "10.244.2.5:7");
    let client = socket(&w.pod, "10.244.1.5:0");
    client.send_to(b"ping", "10.244.2.5:7").unwrap();
    let (_, from) = server.next();
    server.answer("pong", from);
    receive(&client, &mut [0; 16]);
    assert_eq!((tracked(7), tracked(8472)), (1, 0));
}

/// A node between others may send on what comes from a third node's pod.
#[test]
fn another_nodes_pod_keeps_its_source_on_the_overlay() {
    let mut ruleset = ruleset();
    let third = "10.244.3.0/24".parse().unwrap();
    ruleset.cluster_cidrs.insert(third);
    let w = Wires::new(&ruleset);
    w.world.sh("ip addr add 10.244.3.5/32 dev eth0");
    w.node.sh("ip route add 10.244.3.0/24 via 198.51.100.2");
    w.peer
        .sh("ip route add 10.244.3.0/24 via 10.244.1.0 dev tweed.1 onlink");
    // Each from a port of its own: the second is another flow to conntrack.
    let from_third = |from| seen(&w.world, from, &w.remote_pod, "10.244.2.5:7");
    assert_eq!(from_third("10.244.3.5:5001"), "10.244.3.5");
    // It is the set that says so.
    ruleset.cluster_cidrs.remove(&third);
    w.reconcile(&ruleset);
    assert_eq!(from_third("10.244.3.5:5002"), "10.244.1.0");
}

#[test]
fn multicast_that_is_sent_on_keeps_the_pods_source() {
    let w = Wires::new(&ruleset());
    let _routes = multicast::forward(&w.node, "10.244.1.5", "239.1.1.1", "twa", "world");
    let server = multicast::listen(&w.world, "239.1.1.1:7", "198.51.100.2");
    let client = socket(&w.pod, "10.244.1.5:0");
    client.set_multicast_ttl_v4(8).unwrap();
    client.send_to(b"hello", "239.1.1.1:7").unwrap();
    let (text, from) = server.next();
    assert_eq!((&*text, &*from.ip().to_string()), ("hello", "10.244.1.5"));
}
