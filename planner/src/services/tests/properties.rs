//! The plan against the evaluator, and deltas against whole plans.

use proptest::prelude::*;

use super::fixture::planner;
use super::random::World;
use super::walk::{applied, check, walk, without_numbers};
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
    notices.retain(|notice| matches!(notice, Notice::Contested(..)));
    notices
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
            let old = world.planner.desired().clone();
            for _ in 0..=dice.roll(3) {
                world.change(&mut dice);
            }
            match world.planner.plan() {
                Step::Delta(delta) => {
                    prop_assert_eq!(&applied(&delta, &old), world.planner.desired());
                }
                step => {
                    prop_assert_eq!(step, Step::Unchanged);
                    prop_assert_eq!(&old, world.planner.desired());
                }
            }
            agrees_with_the_evaluator(&world, &mut dice, 40);
        }
        let mut fresh = planner(&world.cluster);
        prop_assert_eq!(fresh.plan(), Step::Full);
        prop_assert_eq!(world.planner.services(), fresh.services());
        prop_assert_eq!(contested(&world.planner), contested(&fresh));
        prop_assert_eq!(
            without_numbers(world.planner.desired()),
            without_numbers(fresh.desired())
        );
    }
}
