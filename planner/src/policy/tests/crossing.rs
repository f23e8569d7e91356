//! A namespace that passes what its policies may cost, and one that is below it again: no plan
//! changes very much, others have their turn in between, and nobody may do more than all
//! policies let them.

use std::collections::BTreeSet;

use tweed_core::keyed;
use tweed_core::object::network_policy::{NetworkPolicy, PortMatch, Rule};
use tweed_core::object::{Event, ObjectKey};

use super::cost::{by_bits, elements, of_neighbour, pods_by_bits, refused, two_namespaces};
use super::fixture::{TCP, address, block, node, tcp};
use super::properties::{follows, is_as_planned_anew, used};
use super::walk::{Flow, passes};
use super::world::World;
use crate::policy::desired::Delta;
use crate::policy::evaluate::Verdict;
use crate::policy::planner::Step;
use crate::policy::verdicts::Direction;

/// What the policies of a namespace may cost, and those of all.
const MAX: [usize; 2] = [40_000, 80_000];
/// Pods with labels of their own. Each policy is about a half of them with each of its rules.
const PODS: usize = 64;
const RULES: usize = 100;
/// How many elements one plan may change: a policy has about 3,200, and 5,000 go at once.
const MOST: usize = 10_000;

fn tenant(pods: usize) -> World {
    let mut world = two_namespaces();
    world.cluster.nodes.push(node("me", "10.0.0.0/24"));
    world.set_nodes();
    world.set_local();
    world.planner.model.limit_cost(MAX[0], MAX[1]);
    world.planner.plan();
    pods_by_bits(&mut world, pods);
    world
}

fn come(world: &mut World, number: usize) {
    let policy = by_bits(&format!("bits-{number:02}"), number, RULES);
    let event = Event::Apply(policy.clone());
    world.planner.apply_network_policies(event);
    world.cluster.network_policies.push(policy);
}

fn go(world: &mut World, number: usize) {
    let name = format!("bits-{number:02}");
    let all = &mut world.cluster.network_policies;
    all.retain(|one| one.name != name);
    let namespace = "a".into();
    let event = Event::Delete(ObjectKey { namespace, name });
    world.planner.apply_network_policies(event);
}

fn port_of_neighbour(number: usize) -> u16 {
    u16::try_from(1_000 + 2 * number).unwrap()
}

/// The policy of the other namespace is for one more network, with a profile of its own.
fn change_neighbour(world: &mut World, number: usize) {
    let rule = |number| Rule {
        peers: vec![block(&format!("203.0.113.{number}/32"), &[])],
        ports: vec![tcp(PortMatch::Range(
            port_of_neighbour(number),
            port_of_neighbour(number),
        ))],
    };
    let policy = NetworkPolicy {
        ingress: (1..=number).map(rule).collect(),
        ..of_neighbour(Vec::new())
    };
    let event = Event::Apply(policy.clone());
    world.planner.apply_network_policies(event);
    let all = &mut world.cluster.network_policies;
    all.retain(|one| one.namespace != "b");
    all.push(policy);
}

fn reaches_neighbour(world: &World, number: usize) -> bool {
    let flow = Flow {
        from: address(&format!("203.0.113.{number}")),
        to: address("10.0.0.3"),
        protocol: TCP,
        port: port_of_neighbour(number),
    };
    passes(world.planner.desired(), Direction::In, flow)
}

/// Flows to the tenant's pod, of which a half is allowed if all policies count.
fn flows() -> Vec<(Direction, Flow)> {
    let each = (0..PODS).step_by(21).flat_map(|pod| {
        let flow = move |rule: usize| Flow {
            from: address(&format!("10.0.1.{}", 20 + pod)),
            to: address("10.0.0.2"),
            protocol: TCP,
            port: u16::try_from(2 * rule + 1).unwrap(),
        };
        (0..15 * RULES).step_by(37).map(flow)
    });
    each.map(|flow| (Direction::In, flow)).collect()
}

fn allowed(world: &World) -> usize {
    let desired = world.planner.desired();
    let all = flows().into_iter();
    all.filter(|(direction, flow)| passes(desired, *direction, *flow))
        .count()
}

fn count<K: Ord + Clone, V>(delta: &keyed::Delta<K, V>) -> usize {
    delta.added.len() + delta.removed.len()
}

fn size(delta: &Delta) -> usize {
    let Delta { verdicts, ports } = delta;
    count(&verdicts.identities)
        + count(&verdicts.networks)
        + count(&verdicts.pairs.ingress)
        + count(&verdicts.pairs.egress)
        + count(&ports.open)
        + count(&ports.exact)
        + count(&ports.range_profiles)
        + count(&ports.ranges)
}

/// Plans once, and looks at what that changes and at what may pass after it.
fn plan(world: &mut World) {
    let (old, flows) = (world.planner.desired().clone(), flows());
    let step = world.planner.plan();
    if let Step::Delta(delta) = &step {
        let size = size(delta);
        assert!(size < MOST, "{size} elements change");
    }
    let new = world.planner.desired();
    follows(step, &old, new, &flows).unwrap();
    // A number that pairs get means nothing before, or what it has meant.
    for number in &used(new) - &used(&old) {
        let was = old.verdicts.profiles.get(&number);
        let is = new.verdicts.profiles.get(&number);
        let says = old.ports.exact.range((number, 0, 0)..(number + 1, 0, 0));
        assert!(was.map_or(says.count() == 0, |was| Some(was) == is));
    }
    for (direction, flow) in flows {
        let is = passes(new, direction, flow);
        let counting = world.evaluate(flow).ingress.verdict;
        assert_eq!(is, counting == Verdict::Allowed, "{flow:?}");
        let all = world
            .evaluate_without(flow, BTreeSet::new())
            .ingress
            .verdict;
        assert!(!is || all == Verdict::Allowed, "{flow:?}");
    }
}

#[test]
fn what_a_namespace_had_goes_in_parts_when_it_passes_its_limit() {
    let mut world = tenant(PODS);
    let mut number = 0;
    while refused(&world).is_empty() {
        assert!(number == 0 || allowed(&world) > 0);
        come(&mut world, number);
        number += 1;
        plan(&mut world);
    }
    // Its pod is isolated at once.
    assert_eq!((allowed(&world), number), (0, 13));
    assert_eq!(refused(&world).len(), number);
    assert!(elements(world.planner.desired()) > 3 * MOST);
    let mut turns = 0;
    while world.planner.has_more() {
        turns += 1;
        change_neighbour(&mut world, turns);
        plan(&mut world);
        assert!(reaches_neighbour(&world, turns));
    }
    assert!(turns > 3, "{turns}");
    is_as_planned_anew(&mut world, MAX).unwrap();
    assert!(elements(world.planner.desired()) < 1_000);
}

/// Nothing of its policies changes, but there are more pods that they tell apart.
#[test]
fn pods_with_which_a_namespace_passes_its_limit_get_nothing() {
    let mut world = tenant(16);
    (0..15).for_each(|number| come(&mut world, number));
    world.settle();
    assert!(refused(&world).is_empty() && allowed(&world) > 0);
    pods_by_bits(&mut world, PODS);
    plan(&mut world);
    assert_eq!((refused(&world).len(), allowed(&world)), (15, 0));
    while world.planner.has_more() {
        plan(&mut world);
    }
    is_as_planned_anew(&mut world, MAX).unwrap();
}

#[test]
fn policies_count_again_one_after_the_other_when_their_namespace_is_below_its_limit() {
    let mut world = tenant(PODS);
    (0..15).for_each(|number| come(&mut world, number));
    world.settle();
    assert_eq!(refused(&world).len(), 15);
    let mut number = 0;
    while !world.planner.problems().is_empty() {
        assert_eq!(allowed(&world), 0);
        go(&mut world, number);
        number += 1;
        plan(&mut world);
    }
    assert_eq!((number, world.planner.queued()), (3, 12));
    let (mut turns, mut before) = (0, 0);
    while world.planner.has_more() {
        plan(&mut world);
        let allowed = allowed(&world);
        assert!(allowed >= before);
        before = allowed;
        turns += 1;
        change_neighbour(&mut world, turns);
        plan(&mut world);
        assert!(reaches_neighbour(&world, turns));
    }
    assert!(turns >= 12 && refused(&world).is_empty() && before > 50);
    is_as_planned_anew(&mut world, MAX).unwrap();
}
