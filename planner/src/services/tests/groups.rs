//! Groups of many endpoints.

use proptest::prelude::*;
use tweed_core::object::{Event, Object as _};

use super::fixture::{cluster, endpoint, planner, service, slice};
use super::walk::{applied, check, endpoints};
use crate::services::desired::{Delta, MAX_SLOTS};
use crate::services::{Notice, ServicePlanner, Step};
use crate::tests::dice::Dice;

const MAX: usize = MAX_SLOTS as usize;

/// Endpoints `first` to `last`, the first included.
pub fn numbered(first: usize, last: usize) -> Vec<tweed_core::object::endpoint_slice::Endpoint> {
    let address = |number: usize| format!("10.1.{}.{}", number / 250, number % 250);
    let all = first..last;
    all.map(|number| endpoint(&address(number), "other"))
        .collect()
}

/// A planner of one Service with this many endpoints.
fn planned(count: usize, affinity: Option<u32>) -> ServicePlanner {
    let mut service = service(&["10.96.0.1"]);
    service.affinity_seconds = affinity;
    let mut planner = planner(&cluster(
        vec![service],
        vec![slice("s", numbered(0, count))],
    ));
    assert_eq!(planner.plan(), Step::Full);
    planner
}

fn set(planner: &mut ServicePlanner, first: usize, last: usize) -> Box<Delta> {
    let old = planner.desired().clone();
    planner.apply_endpoint_slices(Event::Apply(slice("s", numbered(first, last))));
    let Step::Delta(delta) = planner.plan() else {
        panic!("no change");
    };
    assert_eq!(&applied(&delta, &old), planner.desired());
    check(planner.desired());
    delta
}

fn reached(planner: &ServicePlanner) -> usize {
    let desired = planner.desired();
    let target = desired.addresses.targets.values().next();
    let Some(group) = target.and_then(|target| target.group()) else {
        panic!("{target:?}");
    };
    endpoints(desired, group).len()
}

/// How many elements of the kernel a change removes and adds.
fn cost(delta: &Delta) -> usize {
    delta.addresses.targets.len()
        + delta.groups.len()
        + delta.slots.len()
        + delta.member_slots.len()
        + delta.parts.len()
        + delta.endpoints.len()
        + delta.members.cluster.len()
        + delta.members.local.len()
}

#[test]
fn every_endpoint_of_a_group_is_reached_whatever_its_size() {
    for count in [1, 2, MAX - 1, MAX, MAX + 1, 2 * MAX, 1000, MAX * MAX] {
        for affinity in [None, Some(60)] {
            let planner = planned(count, affinity);
            check(planner.desired());
            assert_eq!(reached(&planner), count);
            assert!(planner.notices().is_empty());
        }
    }
}

#[test]
fn one_endpoint_costs_the_same_in_a_group_of_any_size() {
    for count in [10, 60, 1000, 5000] {
        for affinity in [None, Some(60)] {
            let mut planner = planned(count, affinity);
            // One comes; then the first goes, so that others move to its slot.
            for (first, last) in [(0, count + 1), (1, count + 1)] {
                let delta = set(&mut planner, first, last);
                assert!(cost(&delta) <= 12, "{count} {affinity:?}: {delta:#?}");
            }
        }
    }
}

/// A group grows and shrinks, and Services come and go, for as long as the agent runs.
#[test]
fn the_numbers_of_parts_that_go_are_used_again() {
    for affinity in [None, Some(60)] {
        let mut planner = planned(6 * MAX, affinity);
        let highest = |planner: &ServicePlanner| {
            let parts = planner.desired().parts.values();
            parts.map(|part| part.group).max()
        };
        let mut seen = Vec::new();
        for _ in 0..6 {
            // Fewer parts, none, and those of a Service that is deleted.
            set(&mut planner, 0, 2 * MAX);
            set(&mut planner, 0, 2);
            set(&mut planner, 0, 6 * MAX);
            planner.apply_services(Event::Delete(service(&[]).key()));
            planner.plan();
            assert_eq!(planner.desired().parts.len(), 0);
            let mut again = service(&["10.96.0.1"]);
            again.affinity_seconds = affinity;
            planner.apply_services(Event::Apply(again));
            planner.plan();
            seen.push(highest(&planner));
        }
        assert!(seen[1..].iter().all(|one| *one <= seen[0]), "{seen:x?}");
    }
}

#[test]
fn endpoints_beyond_the_most_are_not_used_and_named() {
    for affinity in [None, Some(60)] {
        let mut planner = planned(MAX * MAX + 3, affinity);
        assert_eq!(reached(&planner), MAX * MAX);
        let notices = planner.notices();
        assert!(
            matches!(&*notices, [Notice::TooManyEndpoints(service, used)] if &*service.name == "web" && *used == MAX * MAX),
            "{notices:?}"
        );
        // One more changes nothing of it.
        let more = slice("s", numbered(0, MAX * MAX + 4));
        planner.apply_endpoint_slices(Event::Apply(more));
        planner.plan();
        assert_eq!(planner.notices(), notices);
        set(&mut planner, 0, 3);
        assert_eq!(reached(&planner), 3);
        assert!(planner.notices().is_empty());
    }
}

#[test]
fn a_service_for_which_no_number_is_left_has_no_endpoints_and_is_named_until_one_is_free() {
    let named = |name: &str, ip: &str| {
        let (mut service, mut slice) = (service(&[ip]), slice(name, numbered(0, 2)));
        service.name = name.to_owned();
        slice.service = name.to_owned();
        (service, slice)
    };
    let (one, of_one) = named("one", "10.96.0.1");
    let (two, of_two) = named("two", "10.96.0.2");
    let mut planner = planner(&cluster(vec![one.clone(), two], vec![of_one, of_two]));
    planner.table.ports.leave(1);
    assert_eq!(planner.plan(), Step::Full);
    check(planner.desired());
    let targets = |planner: &ServicePlanner| -> Vec<Option<usize>> {
        let desired = planner.desired();
        let targets = desired.addresses.targets.values();
        let groups = targets.map(|target| target.group());
        groups
            .map(|group| Some(endpoints(desired, group?).len()))
            .collect()
    };
    assert_eq!(targets(&planner), [Some(2), None]);
    let notices = planner.notices();
    assert!(
        matches!(&*notices, [Notice::TooManyEndpoints(service, 0)] if &*service.name == "two"),
        "{notices:?}"
    );
    planner.apply_services(Event::Delete(one.key()));
    planner.plan();
    // The number is not given out again in the same change.
    let (_, mut more) = named("two", "");
    more.endpoints = numbered(0, 3);
    planner.apply_endpoint_slices(Event::Apply(more));
    assert!(matches!(planner.plan(), Step::Delta(_)));
    check(planner.desired());
    assert_eq!(targets(&planner), [Some(3)]);
    assert_eq!(planner.notices(), []);
}

/// Endpoints of other nodes are in no group of it, however many they are.
#[test]
fn a_service_of_local_endpoints_is_crowded_by_those_alone() {
    let mut service = service(&["10.96.0.1"]);
    service.internal_local = true;
    let planned = |node: &str| {
        let mut endpoints = numbered(0, MAX * MAX + 3);
        for endpoint in &mut endpoints {
            endpoint.node = node.to_owned();
        }
        let objects = cluster(vec![service.clone()], vec![slice("s", endpoints)]);
        let mut planner = planner(&objects);
        planner.plan();
        planner.notices()
    };
    assert_eq!(planned("other"), []);
    let notices = planned("me");
    assert!(
        matches!(&*notices, [Notice::TooManyEndpoints(_, used)] if *used == MAX * MAX),
        "{notices:?}"
    );
}

#[test]
fn all_endpoints_of_a_large_service_with_affinity_can_change_at_once() {
    let mut planner = planned(5000, Some(60));
    set(&mut planner, 5000, 10000);
    assert_eq!(reached(&planner), 5000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn groups_grow_and_shrink(seed in any::<u64>(), affinity: bool) {
        let mut dice = Dice(seed);
        let mut planner = planned(1 + dice.roll(300), affinity.then_some(60));
        for _ in 0..12 {
            let old = planner.desired().clone();
            let first = dice.roll(300);
            let last = first + 1 + dice.roll(400);
            let mut service = service(&["10.96.0.1"]);
            service.affinity_seconds = dice.chance(2).then_some(60);
            planner.apply_services(Event::Apply(service));
            planner.apply_endpoint_slices(Event::Apply(slice("s", numbered(first, last))));
            if let Step::Delta(delta) = planner.plan() {
                prop_assert_eq!(&applied(&delta, &old), planner.desired());
            }
            check(planner.desired());
            prop_assert_eq!(reached(&planner), last - first);
        }
    }
}
