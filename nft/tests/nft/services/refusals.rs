//! What is refused, and how the client is told.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use tweed_component::drops::DropReason;
use tweed_planner::services::desired::Target;

use super::lab::{
    Answer, BALANCER, FAMILIES, Lab, NEIGHBOUR, NODE, OTHER_SERVICE, SERVICE, Servers,
};
use super::plan::{PROTOCOLS, Plan, TCP, endpoint, group};

#[test]
fn without_endpoints_the_client_is_told() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, 80), Target::Reject)
                .at(protocol, BALANCER.port(family, 80), Target::Reject)
                .node_port(family, protocol, 30080, Target::Reject);
        }
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for from in [&lab.0.pod, &lab.0.world, &lab.0.node] {
                for to in [
                    SERVICE.port(family, 80),
                    BALANCER.port(family, 80),
                    NODE.port(family, 30080),
                ] {
                    let before = lab.dropped(DropReason::NoEndpoint);
                    assert_eq!(lab.ask(from, protocol, to), Answer::Refused, "{to}");
                    assert!(lab.dropped(DropReason::NoEndpoint) > before, "{to}");
                }
            }
        }
    }
}

/// What tells the node's own client goes to a port at which a Service is, whose endpoints
/// may be missing too.
#[test]
fn the_node_is_told_whatever_port_it_sends_from() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        let real = NEIGHBOUR.of(family);
        plan = plan
            .endpoints(target, &[endpoint(real, 8080)])
            .cluster_ip(TCP, SERVICE.port(family, 80), Target::Reject)
            .node_port(family, TCP, 30080, target)
            .node_port(family, TCP, 30081, Target::Reject);
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for port in [40_000, 30_080, 30_081] {
            let (from, to) = (NODE.port(family, port), SERVICE.port(family, 80));
            let refused = lab.0.node.run(move || connect_from(from, to)).unwrap_err();
            assert_eq!(refused, Errno::ECONNREFUSED, "{from}");
        }
    }
}

/// Connects with a source, or gives up when a packet would have been repeated several times.
fn connect_from(from: SocketAddr, to: SocketAddr) -> nix::Result<()> {
    let domain = match from {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let client = socket(domain, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(client.as_raw_fd(), &SockaddrStorage::from(from))?;
    setsockopt(&client, sockopt::SendTimeout, &TimeVal::seconds(5))?;
    connect(client.as_raw_fd(), &SockaddrStorage::from(to))
}

#[test]
fn other_ports_of_a_cluster_ip_are_rejected_and_other_cluster_ips_are_dropped() {
    let lab = Lab::new();
    let mut servers = Servers::new();
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        let real = NEIGHBOUR.port(family, 8080);
        servers = servers.add(&lab.0.neighbour, "neighbour", real);
        plan = plan.endpoints(target, &[endpoint(real.ip(), 8080)]);
        for protocol in PROTOCOLS {
            plan = plan.cluster_ip(protocol, SERVICE.port(family, 80), target);
        }
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for from in [&lab.0.pod, &lab.0.world, &lab.0.node] {
                let ask = |to| lab.ask(from, protocol, to);
                assert!(matches!(ask(SERVICE.port(family, 80)), Answer::From(..)));
                assert_eq!(ask(SERVICE.port(family, 81)), Answer::Refused);
            }
            // The node's own datagram that is dropped is refused to its sender.
            for from in [&lab.0.pod, &lab.0.world] {
                let before = lab.dropped(DropReason::UnknownAddress);
                let to = OTHER_SERVICE.port(family, 80);
                assert_eq!(lab.ask(from, protocol, to), Answer::Dropped);
                assert!(lab.dropped(DropReason::UnknownAddress) > before);
            }
        }
        // Any protocol.
        let ping = |address| {
            let ping = format!("ping -c 1 -W 5 {address} || true");
            lab.0.pod.sh(ping)
        };
        let text = ping(SERVICE.of(family));
        assert!(text.contains("nreachable"), "{text}");
    }
    // Another proxy serves this one, so it is left alone: it goes to the world.
    let mut foreign = plan.clone();
    for family in FAMILIES {
        foreign.0.foreign.insert(OTHER_SERVICE.of(family));
        lab.0
            .world
            .sh(format!("ip addr add {} dev lo", OTHER_SERVICE.of(family)));
        servers = servers.add(&lab.0.world, "other", OTHER_SERVICE.port(family, 80));
    }
    lab.follow(&plan.0, &foreign.0);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let name = lab.name(&lab.0.pod, protocol, OTHER_SERVICE.port(family, 80));
            assert_eq!(name, "other");
        }
    }
    drop(servers);
}

/// A local address of a load balancer, and addresses that are not for node ports.
#[test]
fn node_ports_are_only_at_addresses_of_node_ports() {
    let lab = Lab::new();
    lab.0
        .node
        .sh("ip addr add 203.0.113.1/32 dev lo; ip -6 addr add 2001:db8:2::1/128 dev lo");
    let mut plan = Plan::new();
    let mut servers = Servers::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        let real = NEIGHBOUR.port(family, 8080);
        servers = servers
            .add(&lab.0.neighbour, "neighbour", real)
            .add(&lab.0.node, "node", BALANCER.port(family, 30080))
            .add(&lab.0.world, "world", super::lab::WORLD.port(family, 30080));
        plan = plan.endpoints(target, &[endpoint(real.ip(), 8080)]);
        for protocol in PROTOCOLS {
            plan = plan.node_port(family, protocol, 30080, target);
        }
        plan.0.node_port_exceptions.insert(BALANCER.of(family));
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let name = |from, to| lab.name(from, protocol, to);
            let (world, pod) = (&lab.0.world, &lab.0.pod);
            assert_eq!(name(world, NODE.port(family, 30080)), "neighbour");
            assert_eq!(name(world, BALANCER.port(family, 30080)), "node");
            assert_eq!(name(pod, super::lab::WORLD.port(family, 30080)), "world");
        }
    }
}
