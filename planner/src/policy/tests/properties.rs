//! The compiled plan against the evaluator, and deltas against whole plans.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::walk::{Flow, applied, passes};
use super::world::World;
use crate::policy::desired::{Delta, Desired, Number};
use crate::policy::evaluate::Verdict;
use crate::policy::model::cost::Owner;
use crate::policy::model::local::PolicyKey;
use crate::policy::planner::Step;
use crate::policy::verdicts::{DIRECTIONS, Direction};
use crate::tests::dice::Dice;

/// A random packet between a local pod and anybody, with the direction of that pod.
pub fn flow(world: &World, dice: &mut Dice) -> Option<(Direction, Flow)> {
    let (local, all) = (world.local(), world.addresses());
    if local.is_empty() {
        return None;
    }
    let own = *dice.pick(&local);
    let same: Vec<_> = all
        .into_iter()
        .filter(|one| one.is_ipv4() == own.is_ipv4())
        .collect();
    let other = *dice.pick(&same);
    let direction = *dice.pick(&DIRECTIONS);
    let (from, to) = match direction {
        Direction::In => (other, own),
        Direction::Out => (own, other),
    };
    let ports = [
        (6, 80),
        (6, 443),
        (6, 8080),
        (6, 9100),
        (6, 65535),
        (6, 0),
        (17, 80),
        (17, 443),
    ];
    let others = [
        (17, 8080),
        (132, 80),
        (132, 9999),
        (1, 0),
        (58, 4711),
        (0, 1),
        (255, 9),
    ];
    let (protocol, port) = *dice.pick(&[&ports[..], &others[..]].concat());
    let flow = Flow {
        from,
        to,
        protocol,
        port,
    };
    Some((direction, flow))
}

/// Holds random packets against the evaluator.
fn agrees_with_the_evaluator(world: &World, dice: &mut Dice, packets: usize) {
    let desired = world.planner.desired();
    for _ in 0..packets {
        let Some((direction, flow)) = flow(world, dice) else {
            return;
        };
        let said = world.evaluate(flow);
        let said = match direction {
            Direction::In => said.ingress,
            Direction::Out => said.egress,
        };
        let expected = said.verdict == Verdict::Allowed;
        let is = passes(desired, direction, flow);
        assert_eq!(
            is, expected,
            "{direction:?} {flow:?}: {said:?}\n{:#?}",
            world.cluster
        );
    }
}

/// A step leads from the `old` plan to the `new` one, and says so if it takes away one of
/// the `flows`.
pub fn follows(
    step: Step,
    old: &Desired,
    new: &Desired,
    flows: &[(Direction, Flow)],
) -> Result<(), TestCaseError> {
    match step {
        Step::Hold(why) => panic!("holds: {why:?}"),
        Step::Unchanged => prop_assert_eq!(old, new),
        Step::Full => prop_assert!(!old.verdicts.active || !new.verdicts.active),
        Step::Delta(delta) => {
            prop_assert_eq!(&applied(&delta, old), new);
            prop_assert!(profiles_stay(old, new, &delta), "{delta:#?}");
            let lost = |(direction, flow): &&(Direction, Flow)| {
                passes(old, *direction, *flow) && !passes(new, *direction, *flow)
            };
            let lost = flows.iter().find(lost);
            prop_assert!(
                delta.verdicts.takes_away || lost.is_none(),
                "{:?}: {:#?}",
                lost,
                delta
            );
        }
    }
    Ok(())
}

/// What the elements of each profile, and of each range profile, say.
fn profiles(desired: &Desired) -> BTreeMap<Number, BTreeSet<[u32; 3]>> {
    let open = desired.ports.open.iter().map(|number| (*number, [0; 3]));
    let single = desired.ports.exact.iter();
    let exact =
        single.map(|(number, protocol, port)| (*number, [1, (*protocol).into(), (*port).into()]));
    let range_profiles = desired.ports.range_profiles.iter();
    let of_protocols =
        range_profiles.map(|((number, protocol), of)| (*number, [2, (*protocol).into(), *of]));
    let wide = desired.ports.ranges.iter();
    let ranges = wide.map(|range| (range.profile, [3, range.first.into(), range.last.into()]));
    let mut profiles: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (number, says) in open.chain(exact).chain(of_protocols).chain(ranges) {
        profiles.entry(number).or_default().insert(says);
    }
    profiles
}

/// The profiles that pairs have.
pub fn used(desired: &Desired) -> BTreeSet<Number> {
    let pairs = &desired.verdicts.pairs;
    let pairs = [&pairs.ingress, &pairs.egress].into_iter();
    pairs.flat_map(|pairs| pairs.values()).copied().collect()
}

/// Whether a number that means one thing in one plan and another in the next one is that of a
/// profile that a pair had and of which the change says so, or of a range profile that nothing
/// has left; and only profiles and what they lead to mean anything. Large changes are written in
/// parts that rely on it.
fn profiles_stay(old: &Desired, new: &Desired, delta: &Delta) -> bool {
    let is_known = |desired: &Desired| {
        let profiles_of = desired.verdicts.profiles.keys();
        let numbers = profiles_of.chain(desired.ports.range_profiles.values());
        let known: BTreeSet<&Number> = numbers.collect();
        let says = profiles(desired);
        says.keys().all(|number| known.contains(number))
    };
    let had_pairs = used(old);
    let [before, after] = [old, new].map(profiles);
    let profiles = &delta.verdicts.profiles;
    let of_ranges = &delta.ports.range_profiles;
    let changes = |number: &Number| {
        let leads = old.ports.range_profiles.values().any(|of| of == number);
        let goes = of_ranges.removed.values().any(|of| of == number);
        let is_named = profiles.removed.contains_key(number) && profiles.added.contains_key(number);
        (had_pairs.contains(number) && is_named) || (leads && !goes)
    };
    let stays = |(number, says): (&Number, &BTreeSet<_>)| {
        changes(number) || after.get(number).is_none_or(|after| after == says)
    };
    is_known(old) && is_known(new) && before.iter().all(stays)
}

/// How many elements there are of each sort.
pub fn sizes(desired: &Desired) -> [usize; 11] {
    [
        desired.verdicts.enforced.len(),
        desired.verdicts.policed.ingress.len() + desired.verdicts.policed.egress.len(),
        desired.verdicts.selves.len(),
        desired.verdicts.identities.len(),
        desired.verdicts.networks.len(),
        desired.verdicts.pairs.ingress.len(),
        desired.verdicts.pairs.egress.len(),
        desired.ports.open.len(),
        desired.ports.exact.len(),
        desired.ports.range_profiles.len(),
        desired.ports.ranges.len(),
    ]
}

/// What of this a node may do if all policies count that wait for their turn, and may not do while
/// none of them counts, is all that differs from either.
fn is_within_bounds(world: &World, flows: &[(Direction, Flow)]) -> Result<(), TestCaseError> {
    let not_counting = world.planner.model.refused();
    let queue = &world.planner.model.queue;
    // Those before their change still decide.
    if queue.changed() > 0 {
        return Ok(());
    }
    let refused = { not_counting.difference(&queue.again) }.cloned().collect();
    let is_of_any = |key: &PolicyKey| {
        let is_same = |one: &PolicyKey| Owner::of(one) == Owner::of(key);
        queue.again.iter().any(is_same)
    };
    let in_force = world.planner.in_force().into_iter();
    let none_counts: BTreeSet<PolicyKey> = in_force.filter(is_of_any).collect();
    let none_counts: BTreeSet<PolicyKey> = &none_counts | &not_counting;
    for (direction, flow) in flows {
        let allows = |refused: &BTreeSet<PolicyKey>| {
            let said = world.evaluate_without(*flow, refused.clone());
            let said = match direction {
                Direction::In => said.ingress,
                Direction::Out => said.egress,
            };
            said.verdict == Verdict::Allowed
        };
        let is = passes(world.planner.desired(), *direction, *flow);
        prop_assert!(!is || allows(&refused), "{:?} {:?} passes", direction, flow);
        prop_assert!(
            is || !allows(&none_counts),
            "{:?} {:?} is dropped",
            direction,
            flow
        );
    }
    Ok(())
}

/// A random world in which, mostly, policies may cost only a little.
fn limited(dice: &mut Dice) -> (World, [usize; 2]) {
    let mut world = World::random(dice);
    let max = *dice.pick(&[usize::MAX, 0, 120, 250, 500, 1000]);
    let joint = *dice.pick(&[max, max.saturating_mul(2), max / 2, 700]);
    world.planner.model.limit_cost(max, joint);
    (world, [max, joint])
}

/// A planner that begins with what this one has come to plans as much, once that has no more to
/// do, and nothing else than what pairs lead to.
pub fn is_as_planned_anew(
    world: &mut World,
    [own, joint]: [usize; 2],
) -> Result<(), TestCaseError> {
    world.settle();
    let mut fresh = World::new(world.cluster.clone());
    fresh.planner.model.limit_cost(own, joint);
    fresh.planner.plan();
    let profiles = fresh.planner.desired().verdicts.profiles.keys();
    prop_assert!(profiles.eq(&used(fresh.planner.desired())));
    prop_assert_eq!(
        sizes(world.planner.desired()),
        sizes(fresh.planner.desired())
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_full_plan_says_what_the_specification_says(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let (mut world, _) = limited(&mut dice);
        prop_assert_eq!(world.planner.plan(), Step::Full);
        prop_assert_eq!(world.planner.plan(), Step::Unchanged);
        agrees_with_the_evaluator(&world, &mut dice, 200);
    }

    #[test]
    fn deltas_lead_to_what_a_fresh_planner_plans(seed in any::<u64>(), steps in 1..30usize) {
        let mut dice = Dice(seed);
        let (mut world, limits) = limited(&mut dice);
        world.planner.plan();
        for _ in 0..steps {
            let old = world.planner.desired().clone();
            let flows: Vec<_> = (0..60).filter_map(|_| flow(&world, &mut dice)).collect();
            for _ in 0..=dice.roll(2) {
                world.change(&mut dice);
            }
            let step = world.planner.plan();
            follows(step, &old, world.planner.desired(), &flows)?;
            agrees_with_the_evaluator(&world, &mut dice, 60);
        }
        is_as_planned_anew(&mut world, limits)?;
    }

    #[test]
    fn policies_that_wait_for_their_turn_lead_there_too(seed in any::<u64>(), steps in 1..10usize) {
        let mut dice = Dice(seed);
        let (mut world, limits) = limited(&mut dice);
        world.planner.model.queue.limit(dice.roll(3));
        world.planner.model.limit_going(dice.roll(3));
        world.planner.plan();
        for _ in 0..steps {
            for _ in 0..=dice.roll(6) {
                world.change(&mut dice);
            }
            loop {
                let old = world.planner.desired().clone();
                let flows: Vec<_> = (0..60).filter_map(|_| flow(&world, &mut dice)).collect();
                let step = world.planner.plan();
                follows(step, &old, world.planner.desired(), &flows)?;
                is_within_bounds(&world, &flows)?;
                // What changes meanwhile changes the rest.
                if !world.planner.has_more() || dice.roll(4) == 0 {
                    break;
                }
            }
            if world.planner.model.queue.changed() == 0 {
                agrees_with_the_evaluator(&world, &mut dice, 60);
            }
        }
        is_as_planned_anew(&mut world, limits)?;
    }

    #[test]
    fn a_plan_does_not_depend_on_the_order_in_which_things_became_known(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let (mut world, _) = limited(&mut dice);
        world.planner.plan();
        let before = sizes(world.planner.desired());
        for _ in 0..3 {
            world.tell_again(&mut dice);
            world.settle();
            agrees_with_the_evaluator(&world, &mut dice, 60);
            prop_assert_eq!(sizes(world.planner.desired()), before);
        }
    }
}
