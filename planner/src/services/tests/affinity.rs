//! What the numbers and timeouts of Services with affinity are bound by.

use std::collections::BTreeSet;

use tweed_core::object::{Event, Object as _};

use super::earlier::written;
use super::fixture::{affine, balancer, both, cluster, endpoint, planner, slice, texts};
use crate::services::desired::{Number, affinity_key};
use crate::services::table::timeouts::MAX_TIMEOUTS;
use crate::services::{Notice, ServicePlanner};

/// The kernel goes on to remember the clients of a Service that is deleted, by its block.
#[test]
fn a_new_service_does_not_get_the_block_of_a_deleted_one() {
    let blocks = |planner: &ServicePlanner| -> BTreeSet<Number> {
        let groups = planner.desired().affinities.keys();
        groups.map(|group| affinity_key(*group)).collect()
    };
    let (stays, slice_of_stays) = affine("z", "10.96.0.9");
    let (first, slice_of_first) = affine("a", "10.96.0.1");
    let objects = cluster(
        vec![first.clone(), stays.clone()],
        vec![slice_of_first, slice_of_stays.clone()],
    );
    let mut old = planner(&objects);
    old.plan();
    let of_both = blocks(&old);
    old.apply_services(Event::Delete(first.key()));
    old.plan();
    let of_one = blocks(&old);
    let (second, slice_of_second) = affine("b", "10.96.0.2");
    // In the next run too.
    let mut next = planner(&cluster(vec![stays], vec![slice_of_stays]));
    next.take_over(written(old.desired()));
    next.plan();
    for mut planner in [old, next] {
        assert_eq!(blocks(&planner), of_one);
        planner.apply_services(Event::Apply(second.clone()));
        planner.apply_endpoint_slices(Event::Apply(slice_of_second.clone()));
        planner.plan();
        let now = blocks(&planner);
        let new: Vec<_> = now.difference(&of_one).collect();
        assert_eq!(new.len(), 1);
        assert!(!of_both.contains(new[0]), "{new:x?} {of_both:x?}");
    }
}

/// A packet may have met the number before the change and what it means after it.
#[test]
fn a_number_that_becomes_free_is_not_another_endpoints_in_the_same_change() {
    let (service, slice) = affine("web", "10.96.0.1");
    let mut planner = planner(&cluster(vec![service], vec![slice.clone()]));
    planner.plan();
    let before = planner.desired().endpoints.clone();
    assert_eq!(before.len(), 2);
    let mut other = slice;
    other.endpoints[0] = endpoint("10.0.0.3", "me");
    planner.apply_endpoint_slices(Event::Apply(other));
    planner.plan();
    let after = &planner.desired().endpoints;
    assert_eq!(after.len(), 2);
    for (number, endpoint) in after {
        let was = before.get(number);
        assert!(was.is_none_or(|was| was == endpoint), "{number} {was:?}");
    }
}

/// Services with affinity come and go for as long as the agent runs.
#[test]
fn a_deleted_service_leaves_its_timeout_to_others() {
    let mut planner = planner(&cluster(Vec::new(), Vec::new()));
    planner.plan();
    for timeout in 1..=3 * MAX_TIMEOUTS as u32 {
        let (mut service, slice) = affine("web", "10.96.0.1");
        service.affinity_seconds = Some(timeout);
        planner.apply_endpoint_slices(Event::Apply(slice));
        planner.apply_services(Event::Apply(service.clone()));
        planner.plan();
        assert_eq!(planner.notices(), []);
        planner.apply_services(Event::Delete(service.key()));
        planner.plan();
    }
}

#[test]
fn a_timeout_too_many_is_longer_and_named_until_there_is_room() {
    let with = |number: usize, timeout: u32| {
        let mut one = balancer(false);
        (one.name, one.affinity_seconds) = (format!("s{number}"), Some(timeout));
        one.cluster_ips = texts(&[&format!("10.96.1.{number}")]);
        one.load_balancer_ips = Vec::new();
        one.ports[0].node_port = 0;
        let mut slice = slice(&one.name, both());
        slice.service = one.name.clone();
        (one, slice)
    };
    let timeout = |number: usize| 100 * (1 + number as u32);
    let all = (0..MAX_TIMEOUTS).map(|number| with(number, timeout(number)));
    let (services, slices): (Vec<_>, Vec<_>) = all.unzip();
    let mut planner = planner(&cluster(services.clone(), slices));
    planner.plan();
    let timeouts = |planner: &ServicePlanner| {
        let all = planner.desired().affinities.values().copied();
        all.collect::<BTreeSet<u32>>()
    };
    assert_eq!(timeouts(&planner).len(), MAX_TIMEOUTS - 1);
    let notices = planner.notices();
    let [Notice::OtherTimeout(service, wanted, given)] = &*notices else {
        panic!("{notices:?}");
    };
    assert_eq!(*given, wanted + 100);
    let mut named = services
        .iter()
        .find(|one| one.name == *service.name)
        .unwrap()
        .clone();
    // One that has the timeout of another one needs no place.
    named.affinity_seconds = Some(timeout(0));
    planner.apply_services(Event::Apply(named));
    planner.plan();
    assert!(planner.notices().is_empty());
}
