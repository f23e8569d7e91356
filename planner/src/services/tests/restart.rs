//! The first plan takes over the numbers of an earlier run; and what affinity is bound by.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tweed_core::object::Event;
use tweed_core::object::service::Service;

use super::fixture::{balancer, both, cluster, endpoint, planner, service, slice, texts};
use super::random::World;
use super::walk::{check, without_numbers};
use crate::dice::Dice;
use crate::services::desired::{Desired, Endpoint, Number, affinity_key};
use crate::services::timeouts::MAX_TIMEOUTS;
use crate::services::{KnownNumbers, Notice, ServicePlanner, Step};

/// A planner of the next run for these objects.
fn next_run(world: &World, old: &ServicePlanner) -> ServicePlanner {
    let mut next = planner(&world.cluster);
    next.take_over(KnownNumbers::from(old.desired()));
    assert_eq!(next.plan(), Step::Full);
    next
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_number_never_becomes_another_endpoints(seed in any::<u64>(), away in 0..4usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..dice.roll(20) {
            world.change(&mut dice);
            world.planner.plan();
        }
        let old = world.planner.desired().clone();
        let known = KnownNumbers::from(&old);
        for _ in 0..away {
            world.change(&mut dice);
        }
        let mut next = planner(&world.cluster);
        next.take_over(known);
        prop_assert_eq!(next.plan(), Step::Full);
        check(next.desired());
        for (number, endpoint) in &next.desired().endpoints {
            let was = old.endpoints.get(number);
            prop_assert!(was.is_none_or(|was| was == endpoint), "{} {:?}", number, was);
        }
        let was = KnownNumbers::from(&old).limits;
        for (number, spans) in KnownNumbers::from(next.desired()).limits {
            let was = was.get(&number);
            prop_assert!(was.is_none_or(|was| *was == spans), "{:?} {:?}", number, was);
        }
        let mut fresh = planner(&world.cluster);
        fresh.plan();
        prop_assert_eq!(without_numbers(next.desired()), without_numbers(fresh.desired()));
        // What was not taken over is free again, and nothing is given out twice.
        world.planner = next;
        for _ in 0..6 {
            world.change(&mut dice);
            world.planner.plan();
            check(world.planner.desired());
        }
    }

    #[test]
    fn all_numbers_stay_if_nothing_has_changed(seed in any::<u64>(), changes in 0..20usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..changes {
            world.change(&mut dice);
        }
        world.planner.plan();
        // Of two Services with one frontend, either may get its numbers.
        prop_assume!(world.planner.notices().is_empty());
        // A port that shares its groups with another one of its name, and has lost its number
        // to a third one, is not found again by its own frontends. No API server lets such a
        // Service through.
        let is_found = |service: &Service| {
            let ports = || service.ports.iter();
            let numbers: BTreeSet<_> = ports().map(|one| (&one.protocol, one.port)).collect();
            let names: BTreeSet<_> = ports().map(|one| (&one.protocol, &one.name)).collect();
            numbers.len() == ports().len() || names.len() == ports().len()
        };
        prop_assume!(world.cluster.services.iter().all(is_found));
        let next = next_run(&world, &world.planner);
        let (old, new) = (world.planner.desired(), next.desired());
        prop_assert_eq!(&new.addresses.targets, &old.addresses.targets);
        prop_assert_eq!(&new.node_ports.targets, &old.node_ports.targets);
        prop_assert_eq!((&new.limits, &new.allowed), (&old.limits, &old.allowed));
        // A port whose number another port of its Service has is not found again, and
        // nobody reaches it.
        let reached: BTreeSet<Number> =
            KnownNumbers::from(old).groups.into_values().map(affinity_key).collect();
        let endpoints = |desired: &Desired| -> BTreeMap<Number, Endpoint> {
            let all = desired.endpoints.iter();
            let own = all.filter(|(number, _)| reached.contains(&affinity_key(**number)));
            own.map(|(number, endpoint)| (*number, *endpoint)).collect()
        };
        prop_assert_eq!(endpoints(new), endpoints(old));
    }
}

#[test]
fn services_that_came_in_another_order_keep_their_numbers() {
    let affine = |name: &str, ip: &str| {
        let mut one = service(&[ip]);
        (one.name, one.affinity_seconds) = (name.to_owned(), Some(60));
        let mut slice = slice(name, both());
        slice.service = name.to_owned();
        (one, slice)
    };
    let (last, last_slice) = affine("z", "10.96.0.2");
    let (first, mut first_slice) = affine("a", "10.96.0.1");
    let mut old = planner(&cluster(vec![last.clone()], vec![last_slice.clone()]));
    old.plan();
    old.apply_services(Event::Apply(first.clone()));
    old.apply_endpoint_slices(Event::Apply(first_slice.clone()));
    old.plan();
    first_slice.endpoints.insert(0, endpoint("10.0.0.1", "me"));
    let objects = cluster(vec![first, last], vec![first_slice, last_slice]);
    let mut plain = planner(&objects);
    plain.plan();
    let mut next = planner(&objects);
    next.take_over(KnownNumbers::from(old.desired()));
    next.plan();
    let (old, next) = (old.desired(), next.desired());
    assert_ne!(plain.desired().addresses.targets, old.addresses.targets);
    assert_eq!(next.addresses.targets, old.addresses.targets);
    assert_eq!(next.endpoints.len(), old.endpoints.len() + 1);
    for (number, endpoint) in &old.endpoints {
        assert_eq!(next.endpoints.get(number), Some(endpoint));
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
