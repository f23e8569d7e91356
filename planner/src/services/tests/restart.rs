//! The first plan takes over the numbers of an earlier run.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::{Event, Object as _};

use super::earlier::written;
use super::fixture::{affine, cluster, endpoint, planner, service, slice};
use super::groups::numbered;
use super::random::World;
use super::walk::{check, without_numbers};
use crate::services::desired::{Desired, Endpoint, Group, Number, Part, affinity_key, both_scopes};
use crate::services::tests::evaluator::Cluster;
use crate::services::{KnownSlots, Notice, ServicePlanner, Step};
use crate::tests::dice::Dice;

/// A planner of the next run for these objects.
fn next_run(cluster: &Cluster, old: &ServicePlanner) -> ServicePlanner {
    let mut next = planner(cluster);
    next.take_over(written(old.desired()));
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
        let known = written(&old);
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
        let old_limits = written(&old).limits;
        for (number, spans) in written(next.desired()).limits {
            let was = old_limits.get(&number);
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
            world.planner.plan();
        }
        // Endpoints that go and come back get the last slots.
        for slice in &world.cluster.slices {
            let mut fewer = slice.clone();
            fewer.endpoints.retain(|_| dice.chance(2));
            for slice in [&fewer, slice] {
                world.planner.apply_endpoint_slices(Event::Apply(slice.clone()));
                world.planner.plan();
            }
        }
        // Of two Services with one frontend, either may get its numbers.
        let notices = world.planner.notices();
        let of_services = |one: &Notice| !matches!(one, Notice::Overlap(..));
        prop_assume!(!notices.iter().any(of_services));
        // A port that shares its groups with another one of its name is not found again by its
        // own frontends, where only the other one has lost its number or reaches no endpoint.
        // No API server lets such a Service through.
        let is_found = |service: &Service| {
            let ports = || service.ports.iter();
            let names: BTreeSet<_> = ports().map(|one| (&one.protocol, &one.name)).collect();
            names.len() == ports().len()
        };
        prop_assume!(world.cluster.services.iter().all(is_found));
        let next = next_run(&world.cluster, &world.planner);
        let (old, new) = (world.planner.desired(), next.desired());
        prop_assert_eq!(&new.addresses.targets, &old.addresses.targets);
        prop_assert_eq!(&new.node_ports.targets, &old.node_ports.targets);
        prop_assert_eq!((&new.limits, &new.allowed), (&old.limits, &old.allowed));
        // A port whose number another port of its Service has is not found again, and
        // nobody reaches it.
        let reached: BTreeSet<Number> =
            written(old).groups.into_values().map(affinity_key).collect();
        let endpoints = |desired: &Desired| -> BTreeMap<Number, Endpoint> {
            let all = desired.endpoints.iter();
            let own = all.filter(|(number, _)| reached.contains(&affinity_key(**number)));
            own.map(|(number, endpoint)| (*number, *endpoint)).collect()
        };
        prop_assert_eq!(endpoints(new), endpoints(old));
        prop_assert_eq!(slots(new), slots(old));
    }

    /// No change of one element, however the groups have become what they are.
    #[test]
    fn groups_of_many_endpoints_stay_if_nothing_has_changed(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut crowds = Crowds::random(&mut dice);
        for _ in 0..dice.roll(8) {
            crowds.change(&mut dice);
            crowds.planner.plan();
        }
        let next = next_run(&crowds.cluster(), &crowds.planner);
        prop_assert_eq!(next.desired(), crowds.planner.desired());
    }

    /// While the first plan is written, a new flow may find its part as the earlier run had
    /// it, and the slots of that part as this run has them.
    #[test]
    fn a_part_never_becomes_another_groups(seed in any::<u64>(), away in 1..6usize) {
        let mut dice = Dice(seed);
        let mut crowds = Crowds::random(&mut dice);
        for _ in 0..dice.roll(6) {
            crowds.change(&mut dice);
            crowds.planner.plan();
        }
        let old = crowds.planner.desired().clone();
        for _ in 0..away {
            crowds.change(&mut dice);
        }
        let mut next = next_run(&crowds.cluster(), &crowds.planner);
        check(next.desired());
        let owners = |desired: &Desired| -> BTreeMap<Number, Number> {
            let parts = desired.parts.iter();
            parts.map(|((group, _), part)| (part.group, *group)).collect()
        };
        let (before, after) = (owners(&old), owners(next.desired()));
        for (part, group) in &after {
            let was = before.get(part);
            prop_assert!(was.is_none_or(|was| was == group), "{part:#x} {group:#x} {was:#x?}");
        }
        // The others are free afterwards.
        for _ in 0..4 {
            crowds.planner = next;
            crowds.change(&mut dice);
            crowds.planner.plan();
            check(crowds.planner.desired());
            next = crowds.planner;
        }
    }

    /// Somebody else has changed the kernel's maps, so that they do not fit each other.
    #[test]
    fn slots_that_do_not_fit_each_other_spoil_no_group(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut crowds = Crowds::random(&mut dice);
        crowds.planner.plan();
        let mut known = written(crowds.planner.desired());
        for _ in 0..1 + dice.roll(6) {
            spoil(&mut dice, &mut known.slots);
        }
        let mut next = planner(&crowds.cluster());
        next.take_over(known);
        prop_assert_eq!(next.plan(), Step::Full);
        check(next.desired());
        let mut fresh = planner(&crowds.cluster());
        fresh.plan();
        prop_assert_eq!(without_numbers(next.desired()), without_numbers(fresh.desired()));
    }
}

/// What groups hold that frontends lead to: the groups, their slots and parts.
#[derive(Debug, PartialEq)]
struct Slots {
    groups: BTreeMap<Number, Group>,
    endpoints: BTreeMap<(Number, u8), Endpoint>,
    members: BTreeMap<(Number, u8), Number>,
    parts: BTreeMap<(Number, u8), Part>,
}

fn slots(desired: &Desired) -> Slots {
    let groups = written(desired).groups.into_values();
    let mut reached: BTreeSet<Number> = groups.flat_map(both_scopes).collect();
    let parts = of(&desired.parts, &reached);
    reached.extend(parts.values().map(|part| part.group));
    fn of<V: Copy>(
        map: &BTreeMap<(Number, u8), V>,
        reached: &BTreeSet<Number>,
    ) -> BTreeMap<(Number, u8), V> {
        let entries = map.iter().filter(|((group, _), _)| reached.contains(group));
        entries.map(|(key, value)| (*key, *value)).collect()
    }
    let all = desired.groups.iter();
    let groups = all.filter(|(group, _)| reached.contains(group));
    Slots {
        groups: groups.map(|(number, group)| (*number, *group)).collect(),
        endpoints: of(&desired.slots, &reached),
        members: of(&desired.member_slots, &reached),
        parts: of(&desired.parts, &reached),
    }
}

/// Changes an entry as somebody may who changes the kernel's maps.
fn spoil(dice: &mut Dice, slots: &mut KnownSlots) {
    fn one<V: Copy>(dice: &mut Dice, map: &mut BTreeMap<(Number, u8), V>) {
        let entries: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
        if entries.is_empty() {
            return;
        }
        let (key, (_, value)) = (dice.pick(&entries).0, *dice.pick(&entries));
        if dice.chance(2) {
            map.remove(&key)
        } else {
            map.insert(key, value)
        };
    }
    match dice.roll(3) {
        0 => one(dice, &mut slots.endpoints),
        1 => one(dice, &mut slots.members),
        _ => one(dice, &mut slots.parts),
    }
}

/// Services of very different sizes, and what a planner was told of them.
struct Crowds {
    services: BTreeMap<&'static str, (Service, EndpointSlice)>,
    planner: ServicePlanner,
}

const CROWDS: [&str; 4] = ["a", "b", "c", "d"];

impl Crowds {
    fn random(dice: &mut Dice) -> Self {
        let mut crowds = Self {
            services: BTreeMap::new(),
            planner: planner(&cluster(Vec::new(), Vec::new())),
        };
        for _ in 0..6 {
            crowds.change(dice);
        }
        crowds.planner.plan();
        crowds
    }

    fn cluster(&self) -> Cluster {
        let (services, slices) = self.services.values().cloned().unzip();
        cluster(services, slices)
    }

    /// Changes a Service with its slice, or makes or removes one, and tells the planner.
    fn change(&mut self, dice: &mut Dice) {
        let name = *dice.pick(&CROWDS);
        if dice.chance(5) {
            if let Some((service, slice)) = self.services.remove(name) {
                self.planner.apply_services(Event::Delete(service.key()));
                let slice = Event::Delete(slice.key());
                self.planner.apply_endpoint_slices(slice);
            }
            return;
        }
        let index = CROWDS.iter().position(|one| *one == name).unwrap();
        let mut service = service(&[&format!("10.96.0.{}", 1 + index)]);
        service.name = name.to_owned();
        service.affinity_seconds = dice.chance(3).then_some(60);
        let first = 1000 * index + dice.roll(300);
        let count = *dice.pick(&[1, 3, 70, 90, 200, 400]);
        let mut slice = slice(name, numbered(first, first + 1 + dice.roll(count)));
        slice.service = name.to_owned();
        self.planner.apply_services(Event::Apply(service.clone()));
        self.planner
            .apply_endpoint_slices(Event::Apply(slice.clone()));
        self.services.insert(name, (service, slice));
    }
}

#[test]
fn slots_stay_in_the_order_in_which_endpoints_came() {
    let with = |addresses: &[&str]| {
        let all = addresses.iter().map(|one| endpoint(one, "me"));
        slice("s", all.collect())
    };
    let web = service(&["10.96.0.1"]);
    let mut old = planner(&cluster(vec![web.clone()], vec![with(&["10.0.0.6"])]));
    old.plan();
    let now = with(&["10.0.0.5", "10.0.0.6"]);
    old.apply_endpoint_slices(Event::Apply(now.clone()));
    old.plan();
    let in_order = |planner: &ServicePlanner| -> Vec<String> {
        let slots = planner.desired().slots.values();
        slots.map(|slot| slot.address.to_string()).collect()
    };
    assert_eq!(in_order(&old), ["10.0.0.6", "10.0.0.5"]);
    let next = next_run(&cluster(vec![web.clone()], vec![now]), &old);
    assert_eq!(in_order(&next), ["10.0.0.6", "10.0.0.5"]);
    // What is gone meanwhile leaves its slot to the last one, as in any change.
    let others = with(&["10.0.0.4", "10.0.0.5"]);
    let next = next_run(&cluster(vec![web], vec![others]), &old);
    assert_eq!(in_order(&next), ["10.0.0.5", "10.0.0.4"]);
}

#[test]
fn services_that_came_in_another_order_keep_their_numbers() {
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
    next.take_over(written(old.desired()));
    next.plan();
    let (old, next) = (old.desired(), next.desired());
    assert_ne!(plain.desired().addresses.targets, old.addresses.targets);
    assert_eq!(next.addresses.targets, old.addresses.targets);
    assert_eq!(next.endpoints.len(), old.endpoints.len() + 1);
    for (number, endpoint) in &old.endpoints {
        assert_eq!(next.endpoints.get(number), Some(endpoint));
    }
}
