//! What an edit costs where many policies allow the same pods something, and who waits while
//! very many of them change.

use tweed_core::attachment::PodName;
use tweed_core::object::Event;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, PortMatch, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::LabelSelector;

use super::cluster::Cluster;
use super::fixture::{address, delta, node, pod, selector, tcp};
use super::walk::{Flow, passes};
use super::world::World;
use crate::policy::desired::Delta;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::Direction;
use crate::policy::{LocalPods, PodScope};

const BITS: usize = 5;
const PODS: usize = 1 << BITS;
const RULES: usize = 10;

fn bit(number: usize, value: usize) -> (String, String) {
    (format!("bit{number}"), value.to_string())
}

fn member(number: usize) -> Pod {
    let ip = format!("10.0.0.{}", 100 + number);
    let mut member = pod(&format!("pod{number}"), "me", &ip, &[]);
    member.labels = (0..BITS).map(|at| bit(at, (number >> at) & 1)).collect();
    member
}

fn rule(policy: usize, number: usize, port: u16) -> Rule {
    let (key, value) = bit(number % BITS, (policy + number / BITS) & 1);
    let peer = Peer::Pods {
        namespace: None,
        pod: Some(selector(&[(&key, &value)])),
    };
    Rule {
        peers: vec![peer],
        ports: vec![tcp(PortMatch::Range(port, port))],
    }
}

/// Each rule of it allows a port of its own to half of the pods, from all of them.
fn policy(number: usize) -> NetworkPolicy {
    let port = |rule: usize| (1_000 + 2 * (number * RULES + rule)) as u16;
    NetworkPolicy {
        namespace: "a".into(),
        name: format!("policy{number}"),
        pod_selector: LabelSelector::default(),
        policy_types: vec!["Ingress".into()],
        ingress: (0..RULES).map(|at| rule(number, at, port(at))).collect(),
        ..NetworkPolicy::default()
    }
}

fn world() -> World {
    let mut world = World::new(Cluster {
        namespaces: vec![Namespace {
            name: "a".into(),
            ..Namespace::default()
        }],
        pods: (0..PODS).map(member).collect(),
        nodes: vec![node("me", "10.0.0.0/24")],
        network_policies: (0..10).map(policy).collect(),
        ..Cluster::default()
    });
    assert_eq!(world.planner.plan(), Step::Full);
    world
}

fn apply(world: &mut World, policy: NetworkPolicy) -> Delta {
    world.planner.apply_network_policies(Event::Apply(policy));
    let delta = delta(&mut world.planner);
    let pairs = &delta.verdicts.pairs;
    assert!(pairs.ingress.is_empty() && pairs.egress.is_empty());
    delta
}

#[test]
fn an_edit_of_one_of_many_policies_costs_what_it_changes() {
    let mut world = world();
    let to_first = |world: &World, from: usize, port| {
        let flow = Flow {
            from: address(&format!("10.0.0.{}", 100 + from)),
            to: address("10.0.0.100"),
            protocol: 6,
            port,
        };
        passes(world.planner.desired(), Direction::In, flow)
    };
    assert!(world.planner.desired().ports.exact.len() > PODS * RULES);

    let mut edited = policy(4);
    edited.ingress.push(rule(4, 0, 9_000));
    let delta = apply(&mut world, edited.clone());
    // It is for half of the pods.
    let exact = &delta.ports.exact;
    assert_eq!((exact.removed.len(), exact.added.len()), (0, PODS / 2));
    assert!(!delta.verdicts.takes_away);
    assert!(to_first(&world, 2, 9_000) && !to_first(&world, 1, 9_000));

    edited.ingress.pop();
    let delta = apply(&mut world, edited);
    let exact = &delta.ports.exact;
    assert_eq!((exact.removed.len(), exact.added.len()), (PODS / 2, 0));
    assert!(delta.verdicts.takes_away);
    assert!(!to_first(&world, 2, 9_000));
}

/// The stores' records: these pods.
fn records(pods: &[Pod]) -> LocalPods {
    let record = |pod: &Pod| {
        let name = PodName {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        };
        (address(&pod.addresses[0]), Some(name.into()))
    };
    LocalPods {
        pods: pods.iter().map(record).collect(),
        ..LocalPods::default()
    }
}

#[test]
fn nobody_waits_for_a_namespace_in_which_very_many_rules_change() {
    let mut world = world();
    let mut pods: Vec<Pod> = (0..PODS).map(member).collect();
    let mut other = pod("other", "me", "10.0.0.200", &[]);
    other.namespace = "b".into();
    pods.push(other);
    let other_policy = |port| NetworkPolicy {
        namespace: "b".into(),
        ingress: vec![Rule {
            peers: Vec::new(),
            ports: vec![tcp(PortMatch::Range(port, port))],
        }],
        ..policy(0)
    };
    let planner = &mut world.planner;
    planner.apply_namespaces(Event::Apply(Namespace {
        name: "b".into(),
        ..Namespace::default()
    }));
    planner.apply_pods(&PodScope::Own, Event::Apply(pods[PODS].clone()));
    planner.apply_network_policies(Event::Apply(other_policy(80)));
    planner.set_local(records(&pods));
    delta(planner);

    // All at once, and a pod is added.
    planner.model.queue.limit(4 * RULES);
    for number in 0..10 {
        let mut edited = policy(number);
        edited.ingress.push(rule(number, 0, 9_000));
        planner.apply_network_policies(Event::Apply(edited));
    }
    planner.apply_network_policies(Event::Apply(other_policy(81)));
    let added = pod("added", "me", "10.0.0.201", &[]);
    planner.apply_pods(&PodScope::Own, Event::Apply(added.clone()));
    pods.push(added);
    planner.set_local(records(&pods));
    let reaches = |planner: &PolicyPlanner, to: &str, port| {
        let flow = Flow {
            from: address("10.0.0.102"),
            to: address(to),
            protocol: 6,
            port,
        };
        passes(planner.desired(), Direction::In, flow)
    };
    let is_enforced = |planner: &PolicyPlanner| {
        planner
            .desired()
            .verdicts
            .enforced
            .contains(&address("10.0.0.201"))
    };
    delta(planner);
    assert!(reaches(planner, "10.0.0.200", 81) && !reaches(planner, "10.0.0.200", 80));
    let mut queued = planner.queued();
    assert_eq!(queued, 9);
    while queued > 0 {
        assert!(
            !is_enforced(planner),
            "{queued} policies were not looked at"
        );
        let why = planner.not_known(address("10.0.0.201")).unwrap();
        assert_eq!(
            why,
            format!("{queued} changed policies wait for their turn")
        );
        delta(planner);
        assert!(planner.queued() < queued);
        queued = planner.queued();
    }
    assert!(is_enforced(planner));
    assert!(reaches(planner, "10.0.0.201", 9_000) && reaches(planner, "10.0.0.100", 9_000));
}
