//! The plan against the evaluator, and deltas against whole plans.

use proptest::prelude::*;

use super::fixture::planner;
use super::random::World;
use super::walk::{check, plan_turn, plan_turns, walk, without_numbers};
use crate::services::{Notice, ServicePlanner, Step};
use crate::tests::dice::Dice;

/// Holds random flows against the evaluator.
fn agrees_with_the_evaluator(world: &World, dice: &mut Dice, flows: usize) {
    check(world.planner.desired());
    for _ in 0..flows {
        let flow = world.flow(dice);
        let expected = world.cluster.evaluate(&flow);
        assert_eq!(
            walk(&world.planner, &flow),
            expected,
            "{flow:?}\n{:#?}",
            world.cluster
        );
    }
}

/// What several Services claim, with these.
fn contested(planner: &ServicePlanner) -> Vec<Notice> {
    let mut notices = planner.notices();
    notices.retain(|notice| matches!(notice, Notice::Conflict(..)));
    notices
}

/// Holds the plan against that of a planner which knows nothing else.
fn is_as_a_fresh_plan(world: &World) {
    let mut fresh = planner(&world.cluster);
    assert_eq!(fresh.plan(), Step::Full);
    assert_eq!(world.planner.services(), fresh.services());
    assert_eq!(world.planner.without_local(), fresh.without_local());
    assert_eq!(contested(&world.planner), contested(&fresh));
    assert_eq!(
        without_numbers(world.planner.desired()),
        without_numbers(fresh.desired())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_first_plan_says_what_the_objects_say(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        prop_assert_eq!(world.planner.plan(), Step::Full);
        prop_assert_eq!(world.planner.plan(), Step::Unchanged);
        agrees_with_the_evaluator(&world, &mut dice, 200);
    }

    #[test]
    fn deltas_lead_to_what_a_fresh_planner_plans(seed in any::<u64>(), steps in 1..25usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..steps {
            for _ in 0..=dice.roll(3) {
                world.change(&mut dice);
            }
            plan_turn(&mut world.planner);
            prop_assert_eq!(world.planner.queued(), 0);
            agrees_with_the_evaluator(&world, &mut dice, 40);
        }
        is_as_a_fresh_plan(&world);
    }

    /// Objects change while others wait for their turn.
    #[test]
    fn turns_lead_to_what_a_fresh_planner_plans(seed in any::<u64>(), steps in 1..25usize) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..steps {
            world.planner.model.queue.limit = 1 + dice.roll(30);
            for _ in 0..=dice.roll(3) {
                world.change(&mut dice);
            }
            for _ in 0..=dice.roll(4) {
                plan_turn(&mut world.planner);
            }
        }
        plan_turns(&mut world.planner);
        agrees_with_the_evaluator(&world, &mut dice, 40);
        is_as_a_fresh_plan(&world);
    }
}
