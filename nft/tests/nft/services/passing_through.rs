//! Pods of other nodes that reach a Service by this node, where nodes send pods' packets to
//! each other as they are (`--backend direct`). An answer has to come back by this node: the
//! next one has a route to the pod that does not lead here.

use tweed_core::family::Family;
use tweed_nft::Table as _;
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::services::desired::{Endpoint, Masquerade};

use super::lab::{
    Addresses, Answer, BALANCER, FAMILIES, Lab, NEIGHBOUR, NODE, REMOTE, Servers, UNDERLAY, WORLD,
    both,
};
use super::plan::{PROTOCOLS, Plan, TCP, endpoint, group, node_port};
use crate::wires::ruleset;

/// A pod of a third node, which is the host outside.
const THIRD: Addresses = both("10.244.3.5", "fd00:0:0:3::5");
const REAL: u16 = 8080;

fn direct() -> Ruleset {
    Ruleset {
        masquerade_nodes: false,
        vxlan: None,
        underlay_addresses: ruleset().node_addresses,
        vxlan_sources: Default::default(),
        ..ruleset()
    }
}

/// Three nodes with routes to each other's pods. The third node reaches the pods of the
/// second one without the first.
fn lab() -> Lab {
    let lab = Lab::new();
    let wires = &lab.0;
    wires.node.sh("ip link del tweed.1
         ip route add 10.244.2.0/24 via 192.0.2.2
         ip route add fd00:0:0:2::/64 via 2001:db8::2
         ip route add 10.244.3.0/24 via 198.51.100.2
         ip route add fd00:0:0:3::/64 via 2001:db8:1::2");
    wires.peer.sh("ip link del tweed.1
         ip route add 10.244.1.0/24 via 192.0.2.1
         ip route add fd00:0:0:1::/64 via 2001:db8::1
         ip route add default via 192.0.2.1
         ip -6 route add default via 2001:db8::1");
    let peer = wires.peer.netns();
    wires.world.sh(format!(
        "ip addr add 10.244.3.5/32 dev lo
         ip addr add fd00:0:0:3::5/128 dev lo nodad
         ip link add second type veth peer name third netns {peer}
         ip addr add 192.0.3.3/24 dev second
         ip addr add 2001:db8:3::3/64 dev second nodad
         ip link set second up"
    ));
    wires.peer.sh("ip addr add 192.0.3.2/24 dev third
         ip addr add 2001:db8:3::2/64 dev third nodad
         ip link set third up");
    wires.world.sh("ip route add 10.244.2.0/24 via 192.0.3.2
         ip route add fd00:0:0:2::/64 via 2001:db8:3::2");
    lab
}

/// A Service with `externalTrafficPolicy: Local` and one endpoint, as the planner would say it
/// of a pod of this node or another one.
fn local(to: Addresses) -> Plan {
    let mut plan = Plan::new();
    let at = |family: Family| -> Endpoint { endpoint(to.of(family), REAL) };
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        plan = plan.endpoints(target, &[at(family)]);
        for protocol in PROTOCOLS {
            let balancer = BALANCER.port(family, 80);
            plan = plan
                .at(protocol, balancer, target)
                .masquerade(protocol, balancer, Masquerade::OwnNode)
                .node_port(family, protocol, 30080, target)
                .node_port_policy(
                    node_port(family, protocol, 30080),
                    None,
                    Masquerade::OwnNode,
                );
        }
    }
    plan.0.hairpin.retain(|_| to == NEIGHBOUR);
    plan
}

#[test]
fn a_pod_of_another_node_is_masqueraded_to_endpoints_of_other_nodes_alone() {
    let lab = lab();
    let wires = &lab.0;
    let mut servers = Servers::new();
    for (host, name, at) in [
        (&wires.remote_pod, "itself", REMOTE),
        (&wires.world, "third", THIRD),
        (&wires.neighbour, "neighbour", NEIGHBOUR),
    ] {
        for family in FAMILIES {
            servers = servers.add(host, name, at.port(family, REAL));
        }
    }
    for (name, to, source) in [
        ("itself", REMOTE, UNDERLAY),
        ("third", THIRD, NODE),
        ("neighbour", NEIGHBOUR, REMOTE),
    ] {
        wires.with(|table| table.services.forget());
        lab.make(&direct(), &local(to), false);
        for family in FAMILIES {
            for protocol in PROTOCOLS {
                for at in [BALANCER.port(family, 80), NODE.port(family, 30080)] {
                    let answer = lab.ask(&wires.remote_pod, protocol, at);
                    let expected = Answer::From(name.to_owned(), source.of(family));
                    assert_eq!(answer, expected, "{at}");
                }
            }
        }
    }
    drop(servers);
}

/// Without a Service the node is any router, and whoever translates destinations besides
/// decides about sources.
#[test]
fn what_services_do_not_translate_keeps_its_source() {
    let lab = lab();
    let wires = &lab.0;
    lab.make(&direct(), &local(NEIGHBOUR), false);
    // A port of this node that others have published, as for a container or virtual machine.
    wires.node.sh("nft -f - <<'E'
         table inet others {
           chain prerouting {
             type nat hook prerouting priority dstnat
             fib daddr type local meta l4proto { tcp, udp } th dport 8081 dnat ip to 198.51.100.2:8080
             fib daddr type local meta l4proto { tcp, udp } th dport 8081 dnat ip6 to [2001:db8:1::2]:8080
           }
         }\nE");
    let mut servers = Servers::new();
    for family in FAMILIES {
        servers = servers.add(&wires.world, "world", WORLD.port(family, REAL));
    }
    // The way back is the one by which it comes.
    wires
        .world
        .sh("ip route replace 10.244.2.0/24 via 198.51.100.1
         ip route replace fd00:0:0:2::/64 via 2001:db8:1::1");
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for at in [WORLD.port(family, REAL), NODE.port(family, 8081)] {
                let answer = lab.ask(&wires.remote_pod, protocol, at);
                let expected = Answer::From("world".to_owned(), REMOTE.of(family));
                assert_eq!(answer, expected, "{at}");
            }
        }
    }
    drop(servers);
}

/// The answers of the third node come to the pod by the direct way, so this node sees the
/// client's packets alone: conntrack calls them invalid, but nobody translates the connection.
#[test]
fn a_connection_of_which_this_node_sees_one_direction_comes_about() {
    let lab = lab();
    let wires = &lab.0;
    lab.make(&direct(), &local(NEIGHBOUR), false);
    let mut servers = Servers::new();
    for family in FAMILIES {
        servers = servers.add(&wires.world, "third", THIRD.port(family, REAL));
    }
    for family in FAMILIES {
        let answer = lab.ask(&wires.remote_pod, TCP, THIRD.port(family, REAL));
        let expected = Answer::From("third".to_owned(), REMOTE.of(family));
        assert_eq!(answer, expected);
    }
    drop(servers);
}
