//! What many Services cost their planner: prints figures and asserts none.
//!
//! `cargo test --release -p tweed-planner --test services_scale -- --ignored --nocapture`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test: figures are for a person"
)]

use std::time::{Duration, Instant};

use tweed_core::object::Event;
use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice, SlicePort};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::service::{Service, ServicePort};
use tweed_planner::services::{
    Delta, NodePortAddresses, Options, PodNetworks, ServicePlanner, Step,
};

fn service(number: usize) -> Service {
    Service {
        namespace: format!("namespace-{}", number % 50),
        name: format!("service-{number}"),
        created: Some(1_760_000_000 + number as i64),
        kind: "ClusterIP".to_owned(),
        cluster_ips: vec![format!("10.96.{}.{}", number / 250, number % 250)],
        ports: vec![ServicePort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: 80,
            node_port: 0,
        }],
        ..Service::default()
    }
}

/// As many endpoints as the controller puts into a slice.
const SLICE: usize = 100;

/// The slices of a Service.
fn slices(service: usize, endpoints: usize) -> impl Iterator<Item = EndpointSlice> {
    (0..endpoints).step_by(SLICE).map(move |first| {
        let count = SLICE.min(endpoints - first);
        slice(service, first / SLICE, service * endpoints + first, count)
    })
}

/// A slice of a Service; its endpoints are `first` and the ones behind it.
fn slice(service: usize, index: usize, first: usize, count: usize) -> EndpointSlice {
    let endpoint = |number: usize| Endpoint {
        address: format!(
            "10.{}.{}.{}",
            100 + (number >> 16),
            (number >> 8) & 0xff,
            number & 0xff
        ),
        ready: true,
        serving: true,
        terminating: false,
        node: format!("node-{}", number % 1000),
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    };
    EndpointSlice {
        namespace: format!("namespace-{}", service % 50),
        name: format!("service-{service}-{index}"),
        service: format!("service-{service}"),
        not_ours: false,
        endpoints: (first..first + count).map(endpoint).collect(),
        ports: vec![SlicePort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: 8080,
        }],
        triggered: None,
    }
}

fn node() -> Node {
    Node {
        name: "node-7".to_owned(),
        addresses: vec![NodeAddress {
            kind: "InternalIP".to_owned(),
            address: "192.0.2.7".to_owned(),
        }],
        ..Node::default()
    }
}

/// The memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// The longest and the median time.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!(
        "{:?} (at most {:?})",
        times[times.len() / 2],
        times[times.len() - 1]
    )
}

fn delta(planner: &mut ServicePlanner) -> Box<Delta> {
    match planner.plan() {
        Step::Delta(delta) => delta,
        other => panic!("{other:?}"),
    }
}

/// A planner that was told of these Services and has not planned.
fn told(services: usize, endpoints: usize) -> ServicePlanner {
    let mut planner = ServicePlanner::new(Options {
        node_name: "node-7".to_owned(),
        node_port_addresses: NodePortAddresses {
            primary: true,
            networks: Vec::new(),
        },
        external_ips: false,
        load_balancer_cidrs: ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into(),
    });
    planner.apply_services(Event::Init);
    planner.apply_endpoint_slices(Event::Init);
    for number in 0..services {
        planner.apply_services(Event::InitApply(service(number)));
        for slice in slices(number, endpoints) {
            planner.apply_endpoint_slices(Event::InitApply(slice));
        }
    }
    planner.apply_services(Event::InitDone);
    planner.apply_endpoint_slices(Event::InitDone);
    planner.apply_service_cidrs(Event::Init);
    planner.apply_service_cidrs(Event::InitDone);
    planner.set_node(Some(&node()));
    let pods = ["10.100.0.0/24".parse().unwrap()];
    planner.set_pod_networks(PodNetworks {
        cluster: pods.into(),
        own: pods.into(),
    });
    planner
}

fn measure(services: usize, endpoints: usize) {
    let before = resident();
    let start = Instant::now();
    let mut planner = told(services, endpoints);
    let told = start.elapsed();
    let start = Instant::now();
    assert_eq!(planner.plan(), Step::Full);
    let planned = start.elapsed();
    let held = resident() - before;
    println!("{services} Services with {endpoints} endpoints each:");
    println!("  told in {told:?}, planned in {planned:?}");
    println!(
        "  {held} KiB, {} bytes for each Service",
        held * 1024 / services
    );
    let mut rolled = Vec::new();
    let mut removed = Vec::new();
    let mut elements = 0;
    let changes = services.min(200);
    for number in 0..changes {
        let number = number * services / changes;
        // The first of its endpoints is replaced by one that none has.
        let mut slice = slices(number, endpoints).next().unwrap();
        slice.endpoints[0].address = "10.99.0.1".to_owned();
        let start = Instant::now();
        planner.apply_endpoint_slices(Event::Apply(slice));
        let delta = delta(&mut planner);
        rolled.push(start.elapsed());
        elements = elements.max(delta.slots.len() + delta.groups.len());
    }
    for number in 0..changes {
        let gone = service(number * services / changes);
        let start = Instant::now();
        let key = tweed_core::object::Object::key(&gone);
        planner.apply_services(Event::Delete(key));
        delta(&mut planner);
        removed.push(start.elapsed());
    }
    println!(
        "  one endpoint replaced: {}, at most {elements} elements; a Service removed: {}",
        summary(rolled),
        summary(removed)
    );
}

#[test]
#[ignore = "takes long; its figures are for a person"]
fn many_services() {
    measure(10, 5_000);
    measure(10_000, 2);
    measure(60_000, 2);
}

/// The ports and endpoints of one Service among many.
const HUGE: (usize, usize) = (100, 6_000);

/// Plans until nothing is left to do, and says how long that took.
fn plan_all(planner: &mut ServicePlanner, what: &str) {
    let mut times = Vec::new();
    let mut elements = 0;
    loop {
        let start = Instant::now();
        let step = planner.plan();
        let took = start.elapsed();
        let Step::Delta(delta) = step else { break };
        times.push(took);
        elements = elements.max(delta.slots.len() + delta.tcp_endpoints.len());
    }
    let (turns, all): (usize, Duration) = (times.len(), times.iter().sum());
    println!(
        "  {what}: {turns} turns, {all:?} in all, {} each, of at most {elements} elements; {} KiB",
        summary(times),
        resident()
    );
}

#[test]
#[ignore = "takes long; its figures are for a person"]
fn one_huge_service() {
    let number = 10_000;
    let (ports, endpoints) = HUGE;
    let name = |port: usize| format!("port-{port}");
    let mut huge = service(number);
    huge.ports = (0..ports)
        .map(|port| ServicePort {
            name: name(port),
            protocol: "TCP".to_owned(),
            port: 1000 + port as u16,
            node_port: 0,
        })
        .collect();
    let slice_of = |index| slice(number, index, 1_000_000 + index * SLICE, SLICE);
    let mut slices: Vec<EndpointSlice> = (0..endpoints / SLICE).map(slice_of).collect();
    for slice in &mut slices {
        slice.ports = (0..ports)
            .map(|port| SlicePort {
                name: name(port),
                protocol: "TCP".to_owned(),
                port: 8000 + port as u16,
            })
            .collect();
    }
    let mut planner = told(number, 2);
    planner.plan();
    println!(
        "{ports} ports x {endpoints} endpoints among {number} Services: {} KiB",
        resident()
    );
    planner.apply_services(Event::Apply(huge.clone()));
    for slice in &slices {
        planner.apply_endpoint_slices(Event::Apply(slice.clone()));
    }
    plan_all(&mut planner, "it comes");
    let mut slice = slices[0].clone();
    slice.endpoints[0].ready = false;
    planner.apply_endpoint_slices(Event::Apply(slice));
    plan_all(&mut planner, "one of its endpoints is not ready");
    planner.apply_services(Event::Delete(tweed_core::object::Object::key(&huge)));
    for slice in &slices {
        planner.apply_endpoint_slices(Event::Delete(tweed_core::object::Object::key(slice)));
    }
    plan_all(&mut planner, "it goes");
}
