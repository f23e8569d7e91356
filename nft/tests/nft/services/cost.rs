//! What Services cost: the load of many, one change, and a new flow.
//!
//! ```text
//! cargo test --release -p tweed-nft --test nft services::cost -- --ignored --nocapture
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use tweed_component::schema::Sets as _;
use tweed_core::family::Family;
use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_nft::Table as _;
use tweed_planner::services::desired::{AFFINITY_BLOCK, Delta, FIRST_AFFINITY, Target};

use super::lab::{Lab, NEIGHBOUR};
use super::plan::{Plan, UDP, endpoint, group, number};
use crate::lab::Host;
use crate::node::NOTHING;

fn address(base: [u8; 4], number: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + number).into()
}

/// So many Services of so many endpoints each, all of them at the pod that drops its packets.
fn services(count: u32, endpoints: u16) -> Plan {
    let mut plan = Plan::new();
    let ports = 8080..8080 + endpoints;
    let endpoints = ports.map(|port| endpoint(NEIGHBOUR.of(Family::V4), port));
    let endpoints: Vec<_> = endpoints.collect();
    for number in 0..count {
        let at = SocketAddr::new(address([10, 96, 0, 1], number), 80);
        plan = plan
            .cluster_ip(UDP, at, group(2 * number))
            .endpoints(group(2 * number), &endpoints);
    }
    plan
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// What the kernel of the whole machine has in slabs that it cannot give back.
fn slab_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let mut words = text.split_whitespace();
    let kib = words.by_ref().find(|word| *word == "SUnreclaim:");
    kib.and_then(|_| words.next())
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1024.0
}

/// Nanoseconds of a new flow from the pod to each of these, as the medians of several rounds,
/// which are taken in turn. Each flow has a socket of its own, so that no source port has to be
/// changed.
fn new_flows<const N: usize>(pod: &Host, node: &Host, to: [SocketAddr; N]) -> [f64; N] {
    const FLOWS: usize = 900;
    let mut rounds = to.map(|_| Vec::new());
    for _ in 0..60 {
        for (to, times) in to.into_iter().zip(&mut rounds) {
            node.sh("conntrack -F 2>/dev/null");
            times.push(pod.run(move || {
                let bind = |_| UdpSocket::bind("0.0.0.0:0").unwrap();
                let sockets: Vec<_> = (0..FLOWS).map(bind).collect();
                let start = Instant::now();
                for socket in &sockets {
                    socket.send_to(b"x", to).unwrap();
                }
                start.elapsed().as_nanos() as f64 / FLOWS as f64
            }));
        }
    }
    rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

/// How long each of these changes takes, in milliseconds.
fn follow<const N: usize>(lab: &Lab, changes: [Delta; N]) -> [f64; N] {
    lab.0.with(move |table| {
        changes.map(|delta| {
            let start = Instant::now();
            let outcome = table.services.follow(&mut table.nft, &delta).unwrap();
            let time = milliseconds(start);
            assert!(outcome.is_some());
            time
        })
    })
}

#[test]
#[ignore = "measures: takes minutes, and its figures mean something only in release mode"]
fn load_change_and_new_flows() {
    let lab = Lab::new();
    lab.0.neighbour.sh("nft add table ip sink
         nft add chain ip sink in '{ type filter hook prerouting priority -300; policy drop; }'");
    let (pod, node) = (&lab.0.pod, &lab.0.node);
    node.sh("nft -f - <<'E'
table ip count {
  chain f {
    type filter hook forward priority 10
    ct state new counter
  }
}
E");
    let direct = SocketAddr::new(NEIGHBOUR.of(Family::V4), 10_000);
    let service = SocketAddr::new("10.96.255.1".parse().unwrap(), 10_000);
    node.sh("nft -f - <<'E'
table ip one {
  chain p {
    type nat hook prerouting priority -100
    ip daddr 10.96.255.1 dnat to 10.244.1.6
  }
}
E");
    let [plain, rule] = new_flows(pod, node, [direct, service]);
    println!("no Services, conntrack: {plain:.0} ns a flow; one dnat rule: {rule:.0} ns");
    node.sh("nft delete table ip one");
    for count in [10, 10_000] {
        let plan = services(count, 2).cluster_ip(UDP, service, group(0));
        let (before, start) = (slab_mib(), Instant::now());
        let outcome = lab.replan(&plan);
        let took = milliseconds(start);
        println!(
            "{count} Services: load {took:.0} ms, {:.1} MiB of the kernel's, {outcome:?}",
            slab_mib() - before
        );
        let [none, one] = new_flows(pod, node, [direct, service]);
        println!("{count} Services: {none:.0} ns a flow to no Service, {one:.0} ns to a Service");
        let other = plan
            .clone()
            .endpoints(group(2), &[endpoint(NEIGHBOUR.of(Family::V4), 8080)]);
        let mut other = other;
        other.0.slots.remove(&(number(group(2)), 1));
        let (forth, back) = (plan.0.change_to(&other.0), other.0.change_to(&plan.0));
        let mut times: Vec<f64> = (0..200)
            .flat_map(|_| {
                let (forth, back) = (forth.clone(), back.clone());
                follow(&lab, [forth, back])
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{count} Services: one endpoint: median {:.3} ms, p99 {:.3} ms",
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        );
        lab.0.restart();
        let start = Instant::now();
        let outcome = lab.reconcile(&plan);
        println!(
            "{count} Services: restart {:.0} ms, {outcome:?}",
            milliseconds(start)
        );
    }
}

/// What the first plan of a run waits for, and what the comparison costs after it.
#[test]
#[ignore = "measures: its figures mean something only in release mode"]
fn reading_what_an_earlier_run_has_left() {
    let lab = Lab::new();
    for endpoints in [2, 20] {
        let plan = services(10_000, endpoints);
        lab.replan(&plan);
        lab.0.restart();
        let (read, slots) = lab.0.with(|table| {
            let start = Instant::now();
            let known = table.services.known_numbers(&mut table.nft).unwrap();
            (milliseconds(start), known.slots.endpoints.len())
        });
        let start = Instant::now();
        assert_eq!(lab.reconcile(&plan), NOTHING);
        let compared = milliseconds(start);
        println!(
            "10000 Services of {endpoints} endpoints: {slots} slots, \
             read in {read:.0} ms, then compared in {compared:.0} ms"
        );
    }
}

/// So many Services whose clients keep their endpoint.
fn with_affinity(count: u32) -> Plan {
    let mut plan = Plan::new();
    let places: Vec<_> = (0..2)
        .map(|place| (place, endpoint(NEIGHBOUR.of(Family::V4), 8080)))
        .collect();
    for number in 0..count {
        let at = SocketAddr::new(address([10, 97, 0, 1], number), 80);
        let group = FIRST_AFFINITY + number * AFFINITY_BLOCK;
        plan = plan.cluster_ip(UDP, at, Target::Affinity(group)).members(
            group,
            DEFAULT_AFFINITY_SECONDS,
            &places,
        );
    }
    plan
}

/// One more of them, which brings verdicts into maps: some kernels check all rules for it.
#[test]
#[ignore = "measures: its figures mean something only in release mode"]
fn a_change_beside_services_with_affinity() {
    for count in [10, 100, 300, 1000] {
        let lab = Lab::new();
        let plan = with_affinity(count);
        let start = Instant::now();
        lab.replan(&plan);
        let loaded = milliseconds(start);
        let more = with_affinity(count + 1);
        let (forth, back) = (plan.0.change_to(&more.0), more.0.change_to(&plan.0));
        let times = follow(&lab, [forth, back]);
        println!(
            "{count} Services with affinity: load {loaded:.0} ms, one more and back {times:.1?} ms"
        );
    }
}
