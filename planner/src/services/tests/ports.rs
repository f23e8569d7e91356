//! A Service with as many ports as whoever may create Services can give it: the API server
//! has no small maximum. Each step of planning that looked through all of them for each of
//! them made such a test take minutes.

use tweed_core::object::endpoint_slice::SlicePort;
use tweed_core::object::{Event, endpoint_slice::EndpointSlice, service::Service};

use super::fixture::{both, cluster, planner, port, service, slice};
use super::walk::{check, plan_turns, without_numbers};
use crate::services::Step;

const PORTS: u16 = 10_000;

/// Two numbers of each name, of which both lead to the same.
fn crowd() -> (Service, EndpointSlice) {
    let name = |number: u16| format!("p{}", number / 2);
    let mut service = service(&["10.96.0.1", "fd00:96::1"]);
    let ports = (0..PORTS).map(|number| port(&name(number), "TCP", 1 + number, 0));
    service.ports = ports.collect();
    let mut slice = slice("s", both());
    let ports = (0..PORTS).step_by(2).map(|number| SlicePort {
        name: name(number),
        protocol: "TCP".to_owned(),
        port: 20_000 + number,
    });
    slice.ports = ports.collect();
    (service, slice)
}

#[test]
fn a_service_of_very_many_ports_is_planned_as_one_of_few() {
    let (mut service, mut slice) = crowd();
    let mut planner = planner(&cluster(vec![service.clone()], vec![slice.clone()]));
    assert_eq!(planner.plan(), Step::Full);
    let names = usize::from(PORTS / 2);
    let desired = planner.desired().clone();
    check(&desired);
    // A group of each name in the family that has endpoints, and a frontend of each port.
    assert_eq!(
        (desired.groups.len(), desired.slots.len()),
        (names, 2 * names)
    );
    assert_eq!(desired.addresses.targets.len(), 2 * usize::from(PORTS));

    // In another order they are the same, with the same numbers.
    let pairs = service.ports.chunks(2).rev();
    service.ports = pairs.flatten().cloned().collect();
    planner.apply_services(Event::Apply(service.clone()));
    assert!(!plan_turns(&mut planner));

    // An endpoint is no longer ready, and half of the names go.
    slice.endpoints[0].ready = false;
    service.ports.truncate(names);
    planner.apply_endpoint_slices(Event::Apply(slice.clone()));
    planner.apply_services(Event::Apply(service.clone()));
    assert!(plan_turns(&mut planner));
    assert_eq!(planner.desired().slots.len(), names / 2);
    let mut fresh = super::fixture::planner(&cluster(vec![service], vec![slice]));
    fresh.plan();
    assert_eq!(
        without_numbers(planner.desired()),
        without_numbers(fresh.desired())
    );
}
