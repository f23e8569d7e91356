//! Services that have changed and wait for their turn.

use tweed_core::object::endpoint_slice::{EndpointSlice, SlicePort};
use tweed_core::object::service::Service;
use tweed_core::object::{Event, Object};

use super::fixture::{
    asked, cluster, destination, endpoint, explain, flow, planner, port, service, slice,
};
use super::walk::{check, plan_turn, plan_turns, walk, without_numbers};
use crate::services::tests::evaluator::Verdict;
use crate::services::{ServicePlanner, Step};

const PORTS: u16 = 20;
const SLICES: usize = 20;
/// The endpoints of a slice.
const MANY: usize = 50;

/// A Service with very many endpoints for each of its ports, and its slices.
fn huge() -> (Service, Vec<EndpointSlice>) {
    let name = |number: u16| format!("p{number}");
    let mut service = service(&["10.96.0.1"]);
    service.ports = (0..PORTS)
        .map(|number| port(&name(number), "TCP", 1000 + number, 0))
        .collect();
    let slices = (0..SLICES).map(|index| {
        let address = |number: usize| format!("10.0.{}.{}", 2 + index, 1 + number);
        let endpoints = (0..MANY).map(|number| endpoint(&address(number), "other"));
        let mut slice = slice(&format!("huge-{index}"), endpoints.collect());
        slice.ports = (0..PORTS)
            .map(|number| SlicePort {
                name: name(number),
                protocol: "TCP".to_owned(),
                port: 8000 + number,
            })
            .collect();
        slice
    });
    (service, slices.collect())
}

/// Another one, `shop/other`, with so many endpoints.
fn other(endpoints: usize) -> (Service, EndpointSlice) {
    let address = |number| format!("10.0.1.{}", 2 + number);
    let all = (0..endpoints).map(|number| endpoint(&address(number), "other"));
    let (mut service, mut slice) = (service(&["10.96.0.2"]), slice("other", all.collect()));
    (service.name, slice.service) = ("other".to_owned(), "other".to_owned());
    (service, slice)
}

/// How many endpoints flows to the other one are sent to.
fn reached(planner: &ServicePlanner) -> usize {
    match walk(planner, &flow("10.96.0.2", 80)) {
        Verdict::Send(endpoints) => endpoints.len(),
        _ => 0,
    }
}

/// Changes the other Service, and has it planned before what waits of the huge one.
fn others_do_not_wait(planner: &mut ServicePlanner, endpoints: usize) {
    planner.apply_endpoint_slices(Event::Apply(other(endpoints).1));
    assert!(plan_turn(planner));
    assert_eq!(reached(planner), endpoints);
    assert_eq!(planner.queued(), 1, "the huge one does not wait");
}

#[test]
fn nobody_waits_for_a_service_of_very_many_ports_and_endpoints() {
    let (huge, slices) = huge();
    let (small, of_small) = other(1);
    let mut planner = planner(&cluster(vec![small.clone()], vec![of_small]));
    assert_eq!(planner.plan(), Step::Full);
    // It comes.
    planner.apply_services(Event::Apply(huge.clone()));
    for slice in &slices {
        planner.apply_endpoint_slices(Event::Apply(slice.clone()));
    }
    for endpoints in 2..5 {
        others_do_not_wait(&mut planner, endpoints);
    }
    // What waits gets on all the same, and there is no frontend before its groups.
    let begun = planner.desired().addresses.targets.len();
    assert!((2..10).contains(&begun), "{begun}");
    assert!(
        !planner
            .desired()
            .cluster_ips
            .contains(&"10.96.0.1".parse().unwrap())
    );
    let said = explain(&planner, &asked(destination("10.96.0.2", 80))).unwrap();
    assert!(!said.contains("waits for its turn"), "{said}");
    let said = explain(&planner, &asked(super::fixture::all_of("web"))).unwrap();
    assert!(
        said.contains("a change of Service shop/web waits for its turn"),
        "{said}"
    );
    plan_turns(&mut planner);
    assert_eq!(
        planner.desired().addresses.targets.len(),
        1 + usize::from(PORTS)
    );
    let whole = slices.len() * MANY * usize::from(PORTS);
    assert_eq!(planner.desired().tcp_endpoints.len(), whole + 4);
    // One of its slices changes, twice before all its ports had their turn.
    for ready in [false, true] {
        let mut slice = slices[0].clone();
        slice.endpoints[0].ready = ready;
        planner.apply_endpoint_slices(Event::Apply(slice));
        others_do_not_wait(&mut planner, 2 + usize::from(ready));
    }
    plan_turns(&mut planner);
    // It goes.
    planner.apply_services(Event::Delete(huge.key()));
    for slice in &slices {
        planner.apply_endpoint_slices(Event::Delete(slice.key()));
    }
    for endpoints in 4..6 {
        others_do_not_wait(&mut planner, endpoints);
    }
    plan_turns(&mut planner);
    let mut fresh = super::fixture::planner(&cluster(vec![small], vec![other(5).1]));
    fresh.plan();
    assert_eq!(
        without_numbers(planner.desired()),
        without_numbers(fresh.desired())
    );
}

/// A port that is more than a plan takes up: what comes meanwhile waits for one of them alone,
/// though a reconcile plans twice.
#[test]
fn a_huge_port_has_its_turn_in_every_second_plan() {
    let (huge, slices) = huge();
    let (small, of_small) = other(1);
    let mut planner = planner(&cluster(vec![small], vec![of_small]));
    planner.plan();
    planner.model.queue.limit = SLICES * MANY / 2;
    planner.apply_services(Event::Apply(huge));
    for slice in &slices {
        planner.apply_endpoint_slices(Event::Apply(slice.clone()));
    }
    let has = |planner: &ServicePlanner| planner.desired().addresses.targets.len();
    for turn in 0..6 {
        others_do_not_wait(&mut planner, 2 + turn % 3);
        assert_eq!(has(&planner), 2 + turn / 2, "{turn}");
    }
    // Nor do those wait for which two plans are one too many, where nobody else comes.
    assert!(plan_turn(&mut planner) && !plan_turn(&mut planner) && plan_turn(&mut planner));
    assert_eq!(has(&planner), 6);
}

#[test]
fn a_first_plan_waits_for_nothing() {
    let (huge, slices) = huge();
    let mut planner = planner(&cluster(vec![huge], slices));
    assert_eq!(planner.plan(), Step::Full);
    assert_eq!((planner.queued(), planner.plan()), (0, Step::Unchanged));
    check(planner.desired());
}

/// Between two turns a frontend leads to the port that has had it, or to the one that gets it.
#[test]
fn a_frontend_that_moves_from_port_to_port_leads_somewhere_all_the_time() {
    let (mut huge, slices) = huge();
    let mut planner = planner(&cluster(vec![huge.clone()], slices.clone()));
    planner.plan();
    planner.model.queue.limit = 1;
    // They swap their numbers, and then one has another name.
    let numbers: Vec<u16> = huge.ports.iter().map(|port| port.port).rev().collect();
    for (port, number) in huge.ports.iter_mut().zip(numbers) {
        port.port = number;
    }
    planner.apply_services(Event::Apply(huge.clone()));
    for turn in 0..=usize::from(PORTS) + 5 {
        if turn == 5 {
            // Those that have had their turn are planned anew while others wait.
            huge.ports[0].name = "p1000".to_owned();
            planner.apply_services(Event::Apply(huge.clone()));
            let mut slice = slices[0].clone();
            slice.ports[0].name = "p1000".to_owned();
            slice.endpoints.pop();
            planner.apply_endpoint_slices(Event::Apply(slice));
        }
        plan_turn(&mut planner);
        for number in 0..PORTS {
            let verdict = walk(&planner, &flow("10.96.0.1", 1000 + number));
            assert!(
                matches!(verdict, Verdict::Send(_)),
                "{turn}: {number}: {verdict:?}"
            );
        }
    }
    plan_turns(&mut planner);
    let sent = walk(&planner, &flow("10.96.0.1", 1000 + PORTS - 1));
    let Verdict::Send(to) = sent else {
        panic!("{sent:?}")
    };
    assert!(
        to.iter().all(|(endpoint, _)| endpoint.port == 8000),
        "{to:?}"
    );
}
