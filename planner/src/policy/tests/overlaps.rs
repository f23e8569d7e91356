//! Networks that overlap more than can be told apart.

use tweed_core::object::Event;
use tweed_core::object::network_policy::{NetworkPolicy, PortMatch, Rule};
use tweed_core::object::selector::LabelSelector;
use tweed_core::problem::ProblemKind;

use super::fixture::{TCP, address, allow, block, pod, pods, reaches, records, tcp, world};
use super::world::World;
use crate::policy::desired::Desired;
use crate::policy::evaluator::{Decision, Endpoint};
use crate::policy::planner::Step;
use crate::policy::pods::PodScope;

const WEB: &str = "app";

/// A policy of which each rule has all addresses but one, and a port of its own.
fn all_but_one(name: &str, rules: u16) -> NetworkPolicy {
    let rule = |number: u16| {
        let but = format!("198.18.{}.{}/32", number >> 8, number & 0xff);
        let port = 1024 + 2 * number;
        Rule {
            peers: vec![block("0.0.0.0/0", &[&but]), pods(&[(WEB, "client")])],
            ports: vec![tcp(PortMatch::Range(port, port))],
        }
    };
    NetworkPolicy {
        ingress: (0..rules).map(rule).collect(),
        ..allow(name, Vec::new(), Vec::new())
    }
}

fn elements(desired: &Desired) -> usize {
    let pairs = desired.pairs.ingress.len() + desired.pairs.egress.len();
    desired.networks.len() + pairs + desired.exact.len() + desired.ranges.len()
}

fn apply(world: &mut World, policy: NetworkPolicy) {
    world
        .planner
        .apply_network_policies(Event::Apply(policy.clone()));
    let all = &mut world.cluster.network_policies;
    all.retain(|one| (&one.namespace, &one.name) != (&policy.namespace, &policy.name));
    all.push(policy);
    assert!(matches!(world.planner.plan(), Step::Delta(_)));
}

#[test]
fn the_elements_of_one_policy_do_not_grow_with_the_square_of_its_rules() {
    let simple = || allow("simple", vec![block("203.0.113.0/24", &[])], Vec::new());
    let mut world = world(vec![simple()]);
    apply(&mut world, all_but_one("all-but-one", 300));
    assert!(reaches(&world, "198.51.100.1", 1024) && reaches(&world, "198.51.100.1", 1622));
    assert!(!reaches(&world, "198.18.0.5", 1034) && reaches(&world, "198.18.0.5", 1036));
    assert!(world.planner.problems().is_empty());

    // 30,000 rules: each exception would need a profile with 29,999 ports.
    apply(&mut world, all_but_one("all-but-one", 30_000));
    let elements = elements(world.planner.desired());
    assert!(elements < 100_000, "{elements}");
    let [problem] = world.planner.problems() else {
        panic!("{:?}", world.planner.problems());
    };
    assert_eq!(problem.kind, ProblemKind::PolicyUnsupported);
    assert_eq!(problem.object, "NetworkPolicy a/all-but-one");
    assert!(problem.message.contains("overlap"), "{}", problem.message);
    // It allows nothing by its networks; its pods, and other policies, still count.
    assert!(!reaches(&world, "198.51.100.1", 1024));
    assert!(reaches(&world, "10.0.1.2", 1024) && !reaches(&world, "10.0.1.2", 1025));
    assert!(reaches(&world, "203.0.113.7", 1025));
    let (from, to) = (address("198.51.100.1"), address("10.0.0.2"));
    let (from, to) = (Endpoint::Address(from), Endpoint::Address(to));
    let why = world.planner.explain(&from, &to, TCP, 1024).unwrap();
    assert!(matches!(why.ingress.decision, Decision::NoneAllows(_)));

    // As soon as it is small enough its networks count again.
    apply(&mut world, all_but_one("all-but-one", 300));
    assert!(reaches(&world, "198.51.100.1", 1024));
    assert!(world.planner.problems().is_empty());
}

/// Many policies with a rule each are no way around the limit, and their namespace bears it:
/// the policy of another one is cut into as many pieces, and keeps its networks.
#[test]
fn the_namespace_with_the_most_cuts_loses_networks_first() {
    const MAX: usize = 2_000;
    let mut world = world(Vec::new());
    let everything = LabelSelector::default();
    let other = NetworkPolicy {
        namespace: "b".into(),
        pod_selector: everything.clone(),
        ..allow(
            "other",
            vec![block("0.0.0.0/0", &["10.0.0.0/8"])],
            Vec::new(),
        )
    };
    let neighbour = tweed_core::object::pod::Pod {
        namespace: "b".into(),
        ..pod("neighbour", "me", "10.0.0.3", &[])
    };
    for scope in [PodScope::Own, PodScope::All] {
        world
            .planner
            .apply_pods(&scope, Event::Apply(neighbour.clone()));
    }
    let mut local = records(&[("10.0.0.2", "web")]);
    let in_b = tweed_core::attachment::PodName {
        namespace: "b".into(),
        name: "neighbour".into(),
    };
    local.pods.insert(address("10.0.0.3"), Some(in_b.into()));
    world.planner.set_local(local);
    world.planner.compiled.limit_cuts(MAX);
    world.planner.plan();
    world.planner.apply_network_policies(Event::Apply(other));
    for number in 0..200 {
        let mut policy = all_but_one(&format!("one-{number:03}"), 200);
        policy.ingress = vec![policy.ingress[number].clone()];
        world.planner.apply_network_policies(Event::Apply(policy));
    }
    world.planner.plan();
    let without = world.planner.compiled.without_networks();
    let names: Vec<String> = without.iter().map(ToString::to_string).collect();
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("NetworkPolicy a/")),
        "{names:?}"
    );
    // As many as can be told apart keep theirs.
    assert!((100..195).contains(&names.len()), "{}", names.len());
    let left = 200 - names.len();
    assert!(elements(world.planner.desired()) < MAX + 10 * left);
}
