//! Who may reach what, and the source that an endpoint sees.

use tweed_component::drops::DropReason;
use tweed_core::family::Family;
use tweed_planner::services::desired::{Endpoint, FIRST_LIMIT, Masquerade, Span, Target};

use super::lab::{
    Addresses, Answer, BALANCER, FAMILIES, Lab, NEIGHBOUR, NODE, OVERLAY, POD, REMOTE, SERVICE,
    Servers, WORLD,
};
use super::plan::{PROTOCOLS, Plan, TCP, UDP, endpoint, frontend, group, node_port};
use crate::lab::Host;

const PORT: u16 = 80;
const NODE_PORT: u16 = 30080;
const REAL: u16 = 8080;

fn servers(lab: &Lab) -> Servers {
    let wires = &lab.0;
    let hosts: [(&Host, &str, Addresses); 3] = [
        (&wires.pod, "pod", POD),
        (&wires.neighbour, "neighbour", NEIGHBOUR),
        (&wires.remote_pod, "remote", REMOTE),
    ];
    let all = hosts
        .into_iter()
        .flat_map(|host| FAMILIES.map(|f| (host, f)));
    all.fold(
        Servers::new(),
        |servers, ((host, name, address), family)| {
            servers.add(host, name, address.port(family, REAL))
        },
    )
}

fn at(address: Addresses, family: Family) -> Endpoint {
    endpoint(address.of(family), REAL)
}

fn seen(name: &str, source: Addresses, family: Family) -> Answer {
    Answer::From(name.to_owned(), source.of(family))
}

/// The frontends of one Service that leads to one pod, whose flows from outside lead
/// elsewhere if that is said.
fn exposed(to: Addresses, outside: Option<Target>, masquerade: Masquerade) -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        plan = plan.endpoints(target, &[at(to, family)]);
        for protocol in PROTOCOLS {
            let balancer = BALANCER.port(family, PORT);
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, PORT), target)
                .at(protocol, balancer, target)
                .masquerade(protocol, balancer, masquerade)
                .node_port(family, protocol, NODE_PORT, target)
                .node_port_policy(node_port(family, protocol, NODE_PORT), outside, masquerade);
            if let Some(outside) = outside {
                plan = plan.outside(protocol, balancer, outside);
            }
        }
    }
    plan
}

#[test]
fn a_cluster_ip_is_masqueraded_for_all_but_pods() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    lab.reconcile(&exposed(NEIGHBOUR, None, Masquerade::All));
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let ask = |from| lab.ask(from, protocol, SERVICE.port(family, PORT));
            assert_eq!(ask(&lab.0.pod), seen("neighbour", POD, family));
            let Answer::From(_, outside) = ask(&lab.0.world) else {
                panic!("no answer")
            };
            assert_ne!(outside, WORLD.of(family));
            let Answer::From(..) = ask(&lab.0.node) else {
                panic!("no answer")
            };
        }
    }
    lab.replan(&exposed(REMOTE, None, Masquerade::All));
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let ask = |from| lab.ask(from, protocol, SERVICE.port(family, PORT));
            assert_eq!(ask(&lab.0.pod), seen("remote", POD, family));
            assert_eq!(ask(&lab.0.world), seen("remote", OVERLAY, family));
            assert_eq!(ask(&lab.0.node), seen("remote", OVERLAY, family));
        }
    }
}

#[test]
fn traffic_policy_cluster_masquerades_all_flows_to_outer_addresses() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    lab.reconcile(&exposed(REMOTE, None, Masquerade::All));
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for to in [BALANCER.port(family, PORT), NODE.port(family, NODE_PORT)] {
                for from in [&lab.0.pod, &lab.0.world, &lab.0.node] {
                    let answer = lab.ask(from, protocol, to);
                    assert_eq!(answer, seen("remote", OVERLAY, family), "{to}");
                }
            }
        }
    }
}

#[test]
fn traffic_policy_local_keeps_clients_from_outside_and_pods() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let mut plan = exposed(REMOTE, None, Masquerade::OwnNode);
    for (number, family) in (0..).zip(FAMILIES) {
        let outside = group(2 * number + 1);
        plan = plan.endpoints(outside, &[at(NEIGHBOUR, family)]);
        for protocol in PROTOCOLS {
            plan = plan
                .outside(protocol, BALANCER.port(family, PORT), outside)
                .node_port_policy(
                    node_port(family, protocol, NODE_PORT),
                    Some(outside),
                    Masquerade::OwnNode,
                );
        }
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for to in [BALANCER.port(family, PORT), NODE.port(family, NODE_PORT)] {
                let ask = |from| lab.ask(from, protocol, to);
                assert_eq!(ask(&lab.0.world), seen("neighbour", WORLD, family), "{to}");
                assert_eq!(ask(&lab.0.pod), seen("remote", POD, family), "{to}");
                assert_eq!(ask(&lab.0.node), seen("remote", OVERLAY, family), "{to}");
            }
        }
    }
    // No endpoint here: dropped and counted from outside, and only there.
    let dropping = exposed(REMOTE, Some(Target::Drop), Masquerade::OwnNode);
    lab.replan(&dropping);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for to in [BALANCER.port(family, PORT), NODE.port(family, NODE_PORT)] {
                let before = lab.dropped(DropReason::NoLocalEndpoint);
                assert_eq!(lab.ask(&lab.0.world, protocol, to), Answer::Dropped, "{to}");
                assert!(lab.dropped(DropReason::NoLocalEndpoint) > before);
                let answer = lab.ask(&lab.0.pod, protocol, to);
                assert_eq!(answer, seen("remote", POD, family), "{to}");
            }
        }
    }
}

#[test]
fn a_pod_reaches_itself_and_sees_the_node() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    lab.reconcile(&exposed(POD, None, Masquerade::OwnNode));
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let answer = lab.ask(&lab.0.pod, protocol, SERVICE.port(family, PORT));
            let Answer::From(name, source) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(name, "pod");
            assert_ne!(source, POD.of(family));
            let other = lab.ask(&lab.0.neighbour, protocol, SERVICE.port(family, PORT));
            assert_eq!(other, seen("pod", NEIGHBOUR, family));
        }
    }
}

#[test]
fn source_ranges_hold_before_translation() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let mut plan = exposed(NEIGHBOUR, None, Masquerade::All);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let key = frontend(protocol, BALANCER.port(family, PORT));
            plan.0.limits.insert(key, FIRST_LIMIT);
        }
    }
    lab.reconcile(&plan);
    let only = |address: Addresses| {
        let mut plan = plan.clone();
        plan.0.allowed = FAMILIES
            .map(|family| address.of(family))
            .map(|ip| {
                (
                    FIRST_LIMIT,
                    Span {
                        first: ip,
                        last: ip,
                    },
                )
            })
            .into();
        plan
    };
    let (world, pod) = (only(WORLD), only(POD));
    let mut node = plan.clone();
    node.0.open_to_node.insert(FIRST_LIMIT);
    let mut old = plan.clone();
    for (plan, passes) in [(plan, ""), (world, "world"), (pod, "pod"), (node, "node")] {
        lab.follow(&old.0, &plan.0);
        old = plan;
        for family in FAMILIES {
            for protocol in PROTOCOLS {
                for (from, host) in [
                    ("world", &lab.0.world),
                    ("pod", &lab.0.pod),
                    ("node", &lab.0.node),
                ] {
                    let before = lab.dropped(DropReason::SourceNotAllowed);
                    let answer = lab.ask(host, protocol, BALANCER.port(family, PORT));
                    let dropped = lab.dropped(DropReason::SourceNotAllowed) > before;
                    assert_eq!(matches!(answer, Answer::From(..)), from == passes);
                    assert_eq!(dropped, from != passes, "{from} {passes}");
                    // Another address of the Service has no limit.
                    let node_port = NODE.port(family, NODE_PORT);
                    let open = lab.ask(host, protocol, node_port);
                    assert!(matches!(open, Answer::From(..)), "{open:?}");
                }
            }
        }
    }
}

#[test]
fn tcp_and_udp_on_one_port_are_two_services() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let [tcp, udp] = [group(2 * number), group(2 * number + 1)];
        plan = plan
            .endpoints(tcp, &[at(POD, family)])
            .endpoints(udp, &[at(NEIGHBOUR, family)])
            .cluster_ip(TCP, SERVICE.port(family, PORT), tcp)
            .cluster_ip(UDP, SERVICE.port(family, PORT), udp)
            .node_port(family, TCP, NODE_PORT, tcp)
            .node_port(family, UDP, NODE_PORT, udp);
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for to in [SERVICE.port(family, PORT), NODE.port(family, NODE_PORT)] {
            assert_eq!(lab.name(&lab.0.world, TCP, to), "pod");
            assert_eq!(lab.name(&lab.0.world, UDP, to), "neighbour");
        }
    }
}

/// As the plugin portmap writes it, before and after the table.
#[test]
fn a_host_port_and_a_service_leave_each_other_alone() {
    for first in [true, false] {
        let lab = Lab::new();
        let _servers = servers(&lab);
        let portmap = || {
            lab.0.node.sh("nft -f - <<'E'
         table inet cni_hostport {
           chain prerouting {
             type nat hook prerouting priority dstnat
             fib daddr type local tcp dport 80 dnat ip to 10.244.1.5:8080
             fib daddr type local tcp dport 80 dnat ip6 to [fd00:0:0:1::5]:8080
           }
         }\nE");
        };
        if first {
            portmap();
        }
        lab.reconcile(&exposed(NEIGHBOUR, None, Masquerade::All));
        if !first {
            portmap();
        }
        // The address of the load balancer is one of this node, as some programs make it.
        lab.0
            .node
            .sh("ip addr add 203.0.113.1/32 dev lo; ip -6 addr add 2001:db8:2::1/128 dev lo");
        for family in FAMILIES {
            let name = |to| lab.name(&lab.0.world, TCP, to);
            assert_eq!(name(BALANCER.port(family, PORT)), "neighbour");
            assert_eq!(name(NODE.port(family, PORT)), "pod");
            assert_eq!(name(NODE.port(family, NODE_PORT)), "neighbour");
            assert_eq!(name(SERVICE.port(family, PORT)), "neighbour");
        }
    }
}
