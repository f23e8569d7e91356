//! Endpoints are drawn evenly, from groups and from groups of groups.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tweed_core::family::Family;
use tweed_planner::services::desired::{Endpoint, FIRST_AFFINITY, MAX_SLOTS, Target};

use super::lab::{FAMILIES, Lab, NEIGHBOUR, PATIENCE, SERVICE};
use super::plan::{Plan, UDP, endpoint, group};

/// The port of the first endpoint: all are ports of one address.
const FIRST_PORT: u16 = 10_000;

fn endpoints(address: IpAddr, count: u16) -> Vec<Endpoint> {
    let ports = FIRST_PORT..FIRST_PORT + count;
    ports.map(|port| endpoint(address, port)).collect()
}

/// How many of `flows` new flows got to each port, seen in conntrack: there is no server.
///
/// A busy machine drops packets before they get to conntrack, so those of all flows are sent
/// again until each flow is there. A flow that is there keeps its endpoint.
fn drawn(lab: &Lab, family: Family, flows: u16) -> BTreeMap<u16, usize> {
    let to = SERVICE.port(family, 80);
    let (any, word): (IpAddr, _) = match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED.into(), "ipv4"),
        Family::V6 => (Ipv6Addr::UNSPECIFIED.into(), "ipv6"),
    };
    lab.0.node.sh("conntrack -F 2>/dev/null");
    let start = std::time::Instant::now();
    loop {
        lab.0.pod.run(move || {
            for source in 20_000..20_000 + flows {
                socket(SocketAddr::new(any, source))
                    .send_to(b"x", to)
                    .unwrap();
            }
        });
        let list = lab.0.node.sh(format!(
            "conntrack -L -f {word} -p udp --orig-dst {} 2>/dev/null",
            to.ip()
        ));
        let ports = list.lines().filter_map(|line| {
            let (_, reply) = line.rsplit_once("sport=")?;
            reply.split(' ').next()?.parse::<u16>().ok()
        });
        let mut counts = BTreeMap::new();
        for port in ports {
            *counts.entry(port).or_default() += 1;
        }
        if counts.values().sum::<usize>() == usize::from(flows) {
            return counts;
        }
        assert!(start.elapsed() < PATIENCE, "flows are missing: {counts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Another test's child may have a copy of the socket that had this port, until it runs its
/// program.
fn socket(at: SocketAddr) -> UdpSocket {
    let start = std::time::Instant::now();
    loop {
        match UdpSocket::bind(at) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result.unwrap(),
        }
    }
}

/// Every endpoint is drawn, and none much more often than another: the chance of one
/// beyond these bounds is below one in a million.
fn assert_even(counts: &BTreeMap<u16, usize>, endpoints: usize) {
    assert_eq!(counts.len(), endpoints, "{counts:?}");
    let flows: usize = counts.values().sum();
    let mean = flows as f64 / endpoints as f64;
    let deviation = mean.sqrt() * 7.0;
    for (port, count) in counts {
        let off = (*count as f64 - mean).abs();
        assert!(off < deviation, "{port}: {count} of {flows}, mean {mean}");
    }
}

fn with(target: Target, family: Family, count: u16) -> Plan {
    Plan::new()
        .cluster_ip(UDP, SERVICE.port(family, 80), target)
        .endpoints(target, &endpoints(NEIGHBOUR.of(family), count))
}

#[test]
fn endpoints_of_a_group_are_drawn_evenly() {
    let lab = Lab::new();
    for family in FAMILIES {
        for count in [1, 2, 3, 7, MAX_SLOTS.into()] {
            lab.replan(&with(group(0), family, count));
            let counts = drawn(&lab, family, count * 60);
            assert_even(&counts, count.into());
        }
    }
}

#[test]
fn endpoints_of_a_group_of_groups_are_drawn_evenly() {
    let lab = Lab::new();
    for family in FAMILIES {
        let count = 3 * u16::from(MAX_SLOTS) / 2;
        lab.replan(&with(group(0), family, count));
        assert_even(&drawn(&lab, family, count * 60), count.into());
    }
}

/// Draws one of so many endpoints with affinity until `is_enough` of those that were drawn. A
/// client is remembered, so each of these draws is another client's.
fn draw_with_affinity(count: u16, is_enough: impl Fn(&BTreeMap<u16, usize>) -> bool) {
    let lab = Lab::new();
    let own = endpoints(NEIGHBOUR.of(Family::V4), count);
    let members: Vec<_> = (0..).zip(own).collect();
    let target = Target::Affinity(FIRST_AFFINITY);
    let plan = Plan::new()
        .cluster_ip(UDP, SERVICE.port(Family::V4, 80), target)
        .members(FIRST_AFFINITY, 100, &members);
    lab.reconcile(&plan);
    let mut all = BTreeMap::<u16, usize>::new();
    let start = std::time::Instant::now();
    for _ in 0..200 {
        if is_enough(&all) {
            break;
        }
        assert!(start.elapsed() < PATIENCE * 6, "{all:?}");
        lab.0
            .node
            .sh("nft flush map inet tweed-services service_clients4");
        let counts = drawn(&lab, Family::V4, 3);
        assert_eq!(counts.len(), 1, "{counts:?}");
        for (port, count) in counts {
            *all.entry(port).or_default() += count;
        }
    }
    assert!(is_enough(&all), "{all:?}");
}

/// One of them is not drawn in so many once in 4 * 10^18 runs.
#[test]
fn endpoints_with_affinity_are_all_drawn() {
    draw_with_affinity(5, |all| all.len() == 5);
}

/// Every second endpoint is in the other part of the group.
#[test]
fn endpoints_with_affinity_are_drawn_from_all_parts() {
    draw_with_affinity(3 * u16::from(MAX_SLOTS) / 2, |all| {
        [0, 1]
            .iter()
            .all(|part| all.keys().any(|port| port % 2 == *part))
    });
}
