//! Flows of UDP while Services and endpoints come and go.

mod connections;
mod deleted;
mod other_proxy;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use tweed_core::family::Family;
use tweed_core::object::endpoint_slice::{Endpoint as SliceEndpoint, EndpointSlice};
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object};

use super::earlier::written;
use super::fixture::{
    balancer, both, cluster, ending, endpoint, node, planner, port, service, slice, texts,
};
use super::random::World;
use crate::services::desired::{Endpoint, Frontend, Tracked};
use crate::services::stale::{Flow, FlowEffect, Judge, PROTOCOL, PastFrontends};
use crate::services::tests::evaluator::{self, Cluster, Verdict};
use crate::services::{ServicePlanner, Step};
use crate::tests::dice::Dice;

/// This node's addresses.
const LOCAL: [&str; 2] = ["192.0.2.1", "10.0.0.0"];

fn at(text: &str) -> Endpoint {
    let at: SocketAddr = text.parse().unwrap();
    Endpoint {
        address: at.ip(),
        port: at.port(),
    }
}

fn judge(planner: &ServicePlanner, past: &PastFrontends) -> Judge {
    let local = LOCAL.map(|ip| ip.parse().unwrap());
    Judge::new(planner.desired(), Some(local), past.clone())
}

fn is_stale(judge: &Judge, destination: &str, answered_by: &str) -> bool {
    judge.is_stale(&flow(PROTOCOL, destination, answered_by))
}

fn flow(protocol: u8, destination: &str, answered_by: &str) -> Flow {
    Flow {
        protocol,
        destination: at(destination),
        answered_by: at(answered_by),
    }
}

/// The Service `shop/web` with one port of UDP, 53, and its node port 30053.
fn dns(mut service: Service) -> Service {
    service.ports = vec![port("dns", "UDP", 53, 30053)];
    service
}

fn dns_slice(endpoints: Vec<SliceEndpoint>, port: u16) -> EndpointSlice {
    let mut slice = slice("s", endpoints);
    slice.ports[0].name = "dns".to_owned();
    slice.ports[0].protocol = "UDP".to_owned();
    slice.ports[0].port = port;
    slice
}

fn balanced() -> Cluster {
    cluster(vec![dns(balancer(false))], vec![dns_slice(both(), 5353)])
}

/// Plans, and adds what it removes to `past`. What that does to flows.
fn plan(planner: &mut ServicePlanner, past: &mut PastFrontends) -> FlowEffect {
    match planner.plan() {
        Step::Delta(delta) => past.note(&delta, planner.desired()),
        Step::Unchanged => FlowEffect::None,
        step => panic!("{step:?}"),
    }
}

fn service_cidr() -> ServiceCidr {
    ServiceCidr {
        name: "kubernetes".to_owned(),
        cidrs: texts(&["10.96.0.0/16"]),
    }
}

const FRONTENDS: [&str; 3] = ["10.96.0.1:53", "203.0.113.1:53", "192.0.2.1:30053"];

#[test]
fn a_flow_to_a_serving_endpoint_is_sound_for_a_planner_that_has_just_started() {
    let mut planner = planner(&balanced());
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    for frontend in FRONTENDS {
        for endpoint in ["10.0.0.2:5353", "10.0.1.2:5353"] {
            assert!(!is_stale(&judge, frontend, endpoint), "{frontend}");
        }
        // Its endpoint is gone, has another port, or it was never translated.
        for endpoint in ["10.0.0.7:5353", "10.0.0.2:53", frontend] {
            assert!(is_stale(&judge, frontend, endpoint), "{frontend}");
        }
    }
}

/// As the rules look them up.
#[test]
fn an_address_of_a_service_comes_before_a_node_port_there() {
    let mut cluster = balanced();
    cluster.services[0].load_balancer_ips = texts(&["192.0.2.1"]);
    cluster.services[0].ports[0] = port("dns", "UDP", 30053, 0);
    let mut other = dns(balancer(false));
    other.name = "other".to_owned();
    other.cluster_ips = texts(&["10.96.0.2"]);
    cluster.services.push(other);
    let mut of_other = dns_slice(vec![endpoint("10.0.0.9", "me")], 5353);
    (of_other.name, of_other.service) = ("o".to_owned(), "other".to_owned());
    cluster.slices.push(of_other);
    let mut planner = planner(&cluster);
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    assert!(!is_stale(&judge, "192.0.2.1:30053", "10.0.0.2:5353"));
    assert!(is_stale(&judge, "192.0.2.1:30053", "10.0.0.9:5353"));
}

#[test]
fn while_this_nodes_addresses_are_unknown_no_flow_is_stale_that_may_be_to_a_node_port() {
    let mut planner = planner(&balanced());
    planner.plan();
    // The address of another Service that is gone.
    let had = Tracked::Address(Frontend {
        address: at(FRONTENDS[2]).address,
        protocol: PROTOCOL,
        port: 30053,
    });
    let past = [(had, Some(at("10.0.0.7:5353")))].into_iter().collect();
    let judge = Judge::new(planner.desired(), None::<[IpAddr; 0]>, past);
    for (frontend, stale) in FRONTENDS.into_iter().zip([true, true, false]) {
        assert_eq!(is_stale(&judge, frontend, "10.0.0.7:5353"), stale);
        assert!(!is_stale(&judge, frontend, "10.0.0.2:5353"));
    }
}

#[test]
fn a_change_of_anything_that_flows_are_judged_by_is_noted() {
    let mut planner = planner(&cluster(Vec::new(), Vec::new()));
    planner.plan();
    let past = &mut PastFrontends::default();
    planner.apply_service_cidrs(Event::Apply(service_cidr()));
    assert_eq!(plan(&mut planner, past), FlowEffect::Ends);
    let mut foreign = service(&["10.96.0.9"]);
    (foreign.name, foreign.not_ours) = ("foreign".to_owned(), true);
    planner.apply_services(Event::Apply(foreign));
    assert_eq!(plan(&mut planner, past), FlowEffect::Ends);
    // Of TCP alone, but no node ports are at its address.
    planner.apply_services(Event::Apply(balancer(false)));
    assert_eq!(plan(&mut planner, past), FlowEffect::Ends);
    planner.set_node(Some(&node("me", &["192.0.2.9"], &["10.0.0.0/24"], "z1")));
    assert_eq!(plan(&mut planner, past), FlowEffect::Ends);
    let mut of_tcp = service(&["10.96.0.3"]);
    of_tcp.name = "tcp".to_owned();
    planner.apply_services(Event::Apply(of_tcp.clone()));
    assert_eq!(plan(&mut planner, past), FlowEffect::Ends);
    // Its endpoints have come and gone, and it goes.
    let mut of_tcp_slice = slice("t", both());
    of_tcp_slice.service = "tcp".to_owned();
    for endpoints in [both(), vec![], both()] {
        let slice = EndpointSlice {
            endpoints,
            ..of_tcp_slice.clone()
        };
        planner.apply_endpoint_slices(Event::Apply(slice));
        assert_eq!(plan(&mut planner, past), FlowEffect::None);
    }
    planner.apply_services(Event::Delete(of_tcp.key()));
    assert_eq!(plan(&mut planner, past), FlowEffect::None);
}

#[test]
fn flows_of_others_are_never_stale() {
    let mut planner = planner(&balanced());
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    for (destination, answered_by) in [
        // To the same ports elsewhere, translated by others or not.
        ("198.51.100.1:30053", "198.51.100.1:30053"),
        ("198.51.100.1:53", "198.51.100.1:53"),
        ("192.0.2.2:30053", "10.0.1.7:53"),
        ("10.0.0.2:5353", "10.0.0.2:5353"),
        // A host port beside node ports, and one at an address without node ports.
        ("192.0.2.1:53", "10.0.0.7:53"),
        ("10.0.0.0:30053", "10.0.0.7:53"),
        ("127.0.0.1:30053", "10.0.0.7:53"),
    ] {
        assert!(!is_stale(&judge, destination, answered_by), "{destination}");
    }
}

#[test]
fn with_all_node_port_addresses_only_flows_to_this_node_are_judged() {
    let mut cluster = balanced();
    let everything = ["0.0.0.0/0", "::/0"].map(|cidr| cidr.parse().unwrap());
    cluster.options.node_port_addresses.networks = everything.into();
    let mut planner = planner(&cluster);
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    assert!(is_stale(&judge, "10.0.0.0:30053", "10.0.0.0:30053"));
    assert!(!is_stale(
        &judge,
        "198.51.100.1:30053",
        "198.51.100.1:30053"
    ));
    // The address of a load balancer that a machine has has no node ports.
    let local: [IpAddr; 1] = ["203.0.113.1".parse().unwrap()];
    let judge = Judge::new(planner.desired(), Some(local), PastFrontends::default());
    assert!(!is_stale(&judge, "203.0.113.1:30053", "203.0.113.1:30053"));
}

#[test]
fn endpoints_that_end_or_are_only_published_keep_their_flows_and_others_do_not() {
    let published = SliceEndpoint {
        serving: false,
        ..endpoint("10.0.0.3", "me")
    };
    let not_ready = SliceEndpoint {
        ready: false,
        serving: false,
        ..endpoint("10.0.0.4", "me")
    };
    let endpoints = vec![
        endpoint("10.0.0.2", "me"),
        published,
        not_ready,
        ending("10.0.1.2", "other"),
    ];
    let slices = vec![dns_slice(endpoints, 5353)];
    let mut local_only = dns(balancer(true));
    local_only.internal_local = true;
    let mut planner = planner(&cluster(vec![local_only], slices));
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    for frontend in FRONTENDS {
        for (endpoint, stale) in [
            ("10.0.0.2:5353", false),
            ("10.0.0.3:5353", false),
            ("10.0.1.2:5353", false),
            ("10.0.0.4:5353", true),
        ] {
            assert_eq!(is_stale(&judge, frontend, endpoint), stale, "{endpoint}");
        }
    }
}

#[test]
fn flows_are_stale_when_their_last_endpoint_is_gone_and_after_the_first_has_come() {
    let mut planner = planner(&balanced());
    planner.plan();
    let mut past = PastFrontends::default();
    planner.apply_endpoint_slices(Event::Apply(dns_slice(vec![], 5353)));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
    let none = judge(&planner, &past);
    // Nobody could begin a flow meanwhile.
    planner.apply_endpoint_slices(Event::Apply(dns_slice(both(), 5354)));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Spares);
    let others = judge(&planner, &past);
    for frontend in FRONTENDS {
        for judge in [&none, &others] {
            assert!(is_stale(judge, frontend, "10.0.0.2:5353"));
            assert!(is_stale(judge, frontend, frontend));
        }
        assert!(!is_stale(&others, frontend, "10.0.0.2:5354"));
    }
}

#[test]
fn flows_of_a_deleted_service_are_stale_and_those_of_whoever_comes_after_it_are_not() {
    let mut planner = planner(&Cluster {
        cidrs: vec![service_cidr()],
        ..balanced()
    });
    planner.plan();
    let mut past = PastFrontends::default();
    // The endpoints change, and the Service goes before anything is cleaned.
    planner.apply_endpoint_slices(Event::Apply(dns_slice(
        vec![endpoint("10.0.0.3", "me")],
        5353,
    )));
    plan(&mut planner, &mut past);
    planner.apply_services(Event::Delete(service(&[]).key()));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
    let after = judge(&planner, &past);
    for frontend in FRONTENDS {
        for endpoint in ["10.0.0.2:5353", "10.0.0.3:5353"] {
            assert!(is_stale(&after, frontend, endpoint), "{frontend}");
        }
        assert!(!is_stale(&after, frontend, frontend), "{frontend}");
    }
    // A host port that takes the number.
    assert!(!is_stale(&after, FRONTENDS[2], "10.0.0.7:53"));
    // An agent that did not see the Service knows that nobody else has the cluster IP.
    let fresh = judge(&planner, &PastFrontends::default());
    assert!(is_stale(&fresh, FRONTENDS[0], "10.0.0.2:5353"));
    assert!(!is_stale(&fresh, FRONTENDS[1], "10.0.0.2:5353"));
    assert!(!is_stale(&fresh, FRONTENDS[2], "10.0.0.2:5353"));
}

#[test]
fn flows_of_a_service_that_was_deleted_while_nobody_planned_are_stale_by_the_kernels_elements() {
    let mut before = planner(&balanced());
    before.plan();
    let old = before.desired();
    let known = written(old).frontends_of(PROTOCOL);

    let mut after = planner(&cluster(vec![], vec![]));
    after.plan();
    let past = PastFrontends::of_last_run(&known, after.desired());
    let gone = judge(&after, &past);
    for frontend in FRONTENDS {
        for endpoint in ["10.0.0.2:5353", "10.0.1.2:5353"] {
            assert!(is_stale(&gone, frontend, endpoint), "{frontend}");
        }
        // It was never translated, or by others.
        assert!(!is_stale(&gone, frontend, frontend), "{frontend}");
        assert!(!is_stale(&gone, frontend, "10.0.0.7:53"), "{frontend}");
    }
    assert!(!is_stale(&gone, "192.0.2.1:30054", "10.0.0.2:5353"));

    // What is still there is judged by what serves now.
    let mut same = planner(&balanced());
    same.plan();
    let none = PastFrontends::of_last_run(&known, same.desired());
    assert_eq!(none, PastFrontends::default());
}

#[test]
fn changes_that_make_no_flow_stale_are_none() {
    let mut planner = planner(&balanced());
    planner.plan();
    let mut past = PastFrontends::default();
    let mut edited = dns(balancer(true));
    edited.source_ranges = texts(&["198.51.100.0/24"]);
    planner.apply_services(Event::Apply(edited));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::None);
    let third = endpoint("10.0.0.3", "me");
    let more = both().into_iter().chain([third]).collect();
    planner.apply_endpoint_slices(Event::Apply(dns_slice(more, 5353)));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Spares);
    assert_eq!(past, PastFrontends::default());
    planner.apply_endpoint_slices(Event::Apply(dns_slice(both(), 5353)));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Of such changes conntrack is not looked at. Flows that were sound until then stay so,
    /// whatever has changed since they came.
    #[test]
    fn no_flow_is_stale_by_a_change_that_ends_none(seed in any::<u64>(), steps in 1..15usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        let mut past = PastFrontends::default();
        let mut sound = Vec::new();
        for _ in 0..steps {
            for _ in 0..40 {
                let flow = evaluator::Flow { protocol: PROTOCOL, ..world.flow(&mut dice) };
                let destination = Endpoint { address: flow.destination, port: flow.port };
                let answered_by = match world.cluster.evaluate(&flow) {
                    Verdict::Send(backends) => backends.into_keys().collect(),
                    Verdict::Pass => vec![destination],
                    Verdict::Reject | Verdict::Drop => vec![],
                };
                let protocol = PROTOCOL;
                let with = |answered_by| (flow.is_local, Flow { protocol, destination, answered_by });
                sound.extend(answered_by.into_iter().map(with));
            }
            world.change(&mut dice);
            let effect = match world.planner.plan() {
                Step::Delta(delta) => past.note(&delta, world.planner.desired()),
                Step::Unchanged => FlowEffect::None,
                _ => FlowEffect::Ends,
            };
            let desired = world.planner.desired();
            let is_sound = |(is_local, flow): &(bool, Flow)| {
                let local = is_local.then_some(flow.destination.address);
                !Judge::new(desired, Some(local), past.clone()).is_stale(flow)
            };
            match effect {
                FlowEffect::Ends => sound.retain(is_sound),
                FlowEffect::None | FlowEffect::Spares => {
                    let stale = sound.iter().find(|flow| !is_sound(flow));
                    prop_assert_eq!(stale, None);
                }
            }
        }
    }

    /// By whatever changes, and whatever was there before: where the rules send a new
    /// flow is sound, and what they do not touch too.
    #[test]
    fn new_flows_are_sound_and_dead_ones_are_not(seed in any::<u64>(), steps in 1..15usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        let mut past = PastFrontends::default();
        for _ in 0..steps {
            world.change(&mut dice);
            if let Step::Delta(delta) = world.planner.plan() {
                past.note(&delta, world.planner.desired());
            }
            for _ in 0..40 {
                let flow = evaluator::Flow { protocol: PROTOCOL, ..world.flow(&mut dice) };
                let local = flow.is_local.then_some(flow.destination);
                let desired = world.planner.desired();
                let judges = [PastFrontends::default(), past.clone()]
                    .map(|past| Judge::new(desired, Some(local), past));
                let destination = Endpoint { address: flow.destination, port: flow.port };
                let is_stale = |judge: &Judge, answered_by| {
                    judge.is_stale(&Flow { protocol: PROTOCOL, destination, answered_by })
                };
                let nobody = Endpoint { port: 1, ..destination };
                for judge in &judges {
                    match world.cluster.evaluate(&flow) {
                        Verdict::Send(backends) => {
                            prop_assert!(is_stale(judge, nobody));
                            for (backend, _) in backends {
                                prop_assert!(!is_stale(judge, backend), "{:?}", flow);
                            }
                        }
                        Verdict::Pass => {
                            prop_assert!(!is_stale(judge, destination), "{:?}", flow);
                            prop_assert!(!is_stale(judge, nobody), "{:?}", flow);
                        }
                        Verdict::Reject | Verdict::Drop => {}
                    }
                }
            }
        }
    }
}
