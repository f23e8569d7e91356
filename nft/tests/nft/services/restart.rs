//! Another run of the agent: another planner, which learns of the Services in another
//! order, and another agent.

use tweed_core::object::endpoint_slice::{Endpoint as SliceEndpoint, EndpointSlice, SlicePort};
use tweed_core::object::node::Node;
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::{Event, Object};
use tweed_nft::Table as _;
use tweed_planner::services::{NodePortAddresses, Options, PodNetworks, ServicePlanner, Step};

use super::affinity::{REAL, all};
use super::lab::{
    Addresses, BALANCER, FAMILIES, Lab, NEIGHBOUR, OTHER_SERVICE, POD, REMOTE, SERVICE, both,
};
use super::plan::{Plan, TCP};
use crate::node::NOTHING;

const THIRD_SERVICE: Addresses = both("10.96.0.3", "fd00:96::3");
const OTHER_BALANCER: Addresses = both("203.0.113.2", "2001:db8:2::2");
const THIRD_BALANCER: Addresses = both("203.0.113.3", "2001:db8:2::3");

/// A Service of both families with affinity.
fn service(name: &str, address: Addresses) -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        kind: "ClusterIP".to_owned(),
        cluster_ips: FAMILIES.map(|family| address.of(family).to_string()).into(),
        ports: vec![ServicePort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: 80,
            node_port: 0,
        }],
        affinity_seconds: Some(10_800),
        ..Service::default()
    }
}

fn slice(service: &str, endpoints: &[Addresses]) -> EndpointSlice {
    let addresses = (endpoints.iter()).flat_map(|at| FAMILIES.map(|family| at.of(family)));
    let endpoint = |address: std::net::IpAddr| SliceEndpoint {
        address: address.to_string(),
        ready: true,
        serving: true,
        terminating: false,
        node: "me".to_owned(),
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    };
    EndpointSlice {
        namespace: "shop".to_owned(),
        name: format!("{service}-1"),
        service: service.to_owned(),
        not_ours: false,
        triggered: None,
        endpoints: addresses.map(endpoint).collect(),
        ports: vec![SlicePort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: REAL,
        }],
    }
}

fn list<T: Object>(objects: Vec<T>) -> impl Iterator<Item = Event<T>> {
    std::iter::once(Event::Init)
        .chain(objects.into_iter().map(Event::InitApply))
        .chain([Event::InitDone])
}

/// A planner that knows these and has not planned yet.
fn planner(services: Vec<Service>, slices: Vec<EndpointSlice>) -> ServicePlanner {
    let mut planner = ServicePlanner::new(Options {
        node_name: "me".to_owned(),
        node_port_addresses: NodePortAddresses {
            primary: true,
            networks: Vec::new(),
        },
        external_ips: false,
        load_balancer_cidrs: ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into(),
    });
    for event in list(services) {
        planner.apply_services(event);
    }
    for event in list(slices) {
        planner.apply_endpoint_slices(event);
    }
    for event in list(Vec::new()) {
        planner.apply_service_cidrs(event);
    }
    planner.set_node(Some(&Node {
        name: "me".to_owned(),
        ..Node::default()
    }));
    let pods = ["10.244.1.0/24", "fd00:0:0:1::/64"].map(|text| text.parse().unwrap());
    planner.set_pod_networks(PodNetworks {
        cluster: pods.into(),
        own: pods.into(),
    });
    planner
}

#[test]
fn clients_keep_their_endpoints_over_a_restart_of_the_agent() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let [first, second] = [service("z", SERVICE), service("a", OTHER_SERVICE)];
    let everywhere = [POD, NEIGHBOUR, REMOTE];
    let slices = |endpoints: &[Addresses]| vec![slice("z", &everywhere), slice("a", endpoints)];
    let mut before = planner(vec![first.clone()], slices(&everywhere));
    before.plan();
    before.apply_services(Event::Apply(second.clone()));
    before.plan();
    lab.reconcile(&Plan(before.desired().clone()));
    let ask = || {
        let at = |address: Addresses| {
            FAMILIES.map(|family| lab.name(&lab.0.world, TCP, address.port(family, 80)))
        };
        [at(SERVICE), at(OTHER_SERVICE)]
    };
    let known = ask();

    lab.0.restart();
    let mut same = planner(vec![second.clone(), first.clone()], slices(&everywhere));
    assert!(same.is_about_to_begin());
    same.take_over(
        lab.0
            .with(|table| table.services.known_numbers(&mut table.nft).unwrap()),
    );
    assert_eq!(same.plan(), Step::Full);
    assert_eq!(lab.reconcile(&Plan(same.desired().clone())), NOTHING);
    assert_eq!(ask(), known);

    // An endpoint is gone in the meantime. Whoever had it gets another one.
    lab.0.restart();
    let names = ["pod", "neighbour", "remote"];
    let of_second = names.iter().position(|name| *name == known[1][0]).unwrap();
    let mut rest = everywhere.to_vec();
    rest.remove(of_second);
    let mut fewer = planner(vec![second.clone(), first.clone()], slices(&rest));
    fewer.take_over(
        lab.0
            .with(|table| table.services.known_numbers(&mut table.nft).unwrap()),
    );
    fewer.plan();
    lab.reconcile(&Plan(fewer.desired().clone()));
    let now = ask();
    assert_eq!(now[0], known[0]);
    assert_ne!(now[1][0], known[1][0]);
    if known[1][1] != known[1][0] {
        assert_eq!(now[1][1], known[1][1]);
    }
    assert_eq!(ask(), now);

    // Without the numbers they are others, and no client is led by a wrong one.
    lab.0.restart();
    let mut other = planner(vec![second, first], slices(&[NEIGHBOUR, REMOTE]));
    other.plan();
    assert_ne!(other.desired().endpoints, fewer.desired().endpoints);
    lab.0.with(|table| table.services.forget());
    lab.reconcile(&Plan(other.desired().clone()));
    for family in ['4', '6'] {
        let map = format!("nft list map inet tweed-services service_clients{family}");
        let map = lab.0.node.sh(map);
        assert!(!map.contains("expires"), "{map}");
    }
}

/// The order of slots and the numbers of parts are what the history of the endpoints has
/// made of them.
#[test]
fn groups_of_any_size_change_nothing_over_a_restart_of_the_agent() {
    let lab = Lab::new();
    let plain = |name: &str, at: Addresses| Service {
        affinity_seconds: None,
        ..service(name, at)
    };
    let services = vec![
        plain("z", SERVICE),
        plain("b", THIRD_SERVICE),
        service("a", OTHER_SERVICE),
    ];
    let numbered = |service: &str, numbers: std::ops::Range<u8>| {
        let mut slice = slice(service, &[POD]);
        let of_pod = slice.endpoints.clone();
        for number in numbers {
            let mut more = of_pod.clone();
            more[0].address = format!("10.244.1.{number}");
            more[1].address = format!("fd00:0:0:1::1:{number:x}");
            slice.endpoints.append(&mut more);
        }
        slice
    };
    let mut before = planner(services.clone(), Vec::new());
    before.plan();
    let steps = [
        ("z", 50..200),
        ("a", 50..200),
        ("b", 60..70),
        ("a", 20..150),
        ("z", 30..190),
        ("b", 50..65),
    ];
    for (service, numbers) in steps {
        before.apply_endpoint_slices(Event::Apply(numbered(service, numbers)));
        before.plan();
    }
    lab.reconcile(&Plan(before.desired().clone()));

    lab.0.restart();
    let slices = [("z", 30..190), ("b", 50..65), ("a", 20..150)]
        .map(|(service, numbers)| numbered(service, numbers));
    let mut next = planner(services, slices.into());
    next.take_over(
        lab.0
            .with(|table| table.services.known_numbers(&mut table.nft).unwrap()),
    );
    assert_eq!(next.plan(), Step::Full);
    assert_eq!(next.desired(), before.desired());
    assert_eq!(lab.reconcile(&Plan(next.desired().clone())), NOTHING);
}

/// A number of a limit that became another one's could not change without a moment in which
/// clients of both are refused.
#[test]
fn source_ranges_keep_their_numbers_over_a_restart_of_the_agent() {
    let lab = Lab::new();
    let limited = |name: &str, at: Addresses, balancer: Addresses, ranges: &[&str]| Service {
        kind: "LoadBalancer".to_owned(),
        load_balancer_ips: FAMILIES
            .map(|family| balancer.of(family).to_string())
            .into(),
        source_ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
        ..service(name, at)
    };
    let ranges = ["198.51.100.0/24", "192.0.2.7/32", "2001:db8:1::/48"];
    let first = limited("z", SERVICE, BALANCER, &ranges);
    // Nobody passes.
    let second = limited("a", OTHER_SERVICE, OTHER_BALANCER, &["everywhere"]);
    let third = limited("b", THIRD_SERVICE, THIRD_BALANCER, &ranges[1..]);
    let mut before = planner(vec![first.clone()], Vec::new());
    before.plan();
    for later in [&second, &third] {
        before.apply_services(Event::Apply(later.clone()));
        before.plan();
    }
    lab.reconcile(&Plan(before.desired().clone()));
    lab.0.restart();
    let mut next = planner(vec![first, second, third], Vec::new());
    next.take_over(
        lab.0
            .with(|table| table.services.known_numbers(&mut table.nft).unwrap()),
    );
    next.plan();
    assert_eq!(next.desired().limits, before.desired().limits);
    assert_eq!(lab.reconcile(&Plan(next.desired().clone())), NOTHING);
}
