//! Policies that cost more than a node has room for.

use tweed_core::attachment::PodName;
use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::{NetworkPolicy, Peer, PortMatch, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::LabelSelector;
use tweed_core::object::{Event, ObjectKey};
use tweed_core::problem::ProblemKind;

use super::fixture::{TCP, address, allow, block, pod, pods, reaches, records, tcp, world};
use super::world::World;
use crate::policy::desired::Desired;
use crate::policy::evaluate::{Decision, Verdict};
use crate::policy::model::pods::PodScope;
use crate::policy::planner::Step;
use crate::policy::verdicts::Direction;

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

pub fn elements(desired: &Desired) -> usize {
    let pairs = desired.verdicts.pairs.ingress.len() + desired.verdicts.pairs.egress.len();
    desired.verdicts.networks.len() + pairs + desired.ports.exact.len() + desired.ports.ranges.len()
}

fn apply(world: &mut World, policy: NetworkPolicy) {
    world
        .planner
        .apply_network_policies(Event::Apply(policy.clone()));
    let all = &mut world.cluster.network_policies;
    all.retain(|one| (&one.namespace, &one.name) != (&policy.namespace, &policy.name));
    all.push(policy);
    world.settle();
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
    assert!(elements < 100, "{elements}");
    let [one, two] = world.planner.problems() else {
        panic!("{:?}", world.planner.problems());
    };
    assert_eq!(one.kind, ProblemKind::PolicyUnsupported);
    assert_eq!(one.object, "NetworkPolicy a/all-but-one");
    assert_eq!(two.object, "NetworkPolicy a/simple");
    assert!(one.message.contains("stay isolated"), "{}", one.message);
    // The pods that they select are isolated, and whoever asks is told why.
    assert!(!reaches(&world, "198.51.100.1", 1024) && !reaches(&world, "10.0.1.2", 1024));
    assert!(!reaches(&world, "203.0.113.7", 1025));
    let (from, to) = (address("198.51.100.1"), address("10.0.0.2"));
    let why = world.planner.evaluate(from, to, TCP, 1024);
    assert!(matches!(why.ingress.decision, Decision::NoneAllows(_)));

    // As soon as it costs little enough its rules count again.
    apply(&mut world, all_but_one("all-but-one", 300));
    assert!(reaches(&world, "198.51.100.1", 1024) && reaches(&world, "203.0.113.7", 1025));
    assert!(world.planner.problems().is_empty());
}

/// A world with the pods `web` of namespace `a` and `neighbour` of namespace `b` here.
pub fn two_namespaces() -> World {
    let mut world = world(Vec::new());
    let neighbour = Pod {
        namespace: "b".into(),
        ..pod("neighbour", "me", "10.0.0.3", &[])
    };
    world.cluster.pods.push(neighbour.clone());
    for scope in [PodScope::Own, PodScope::All] {
        let event = Event::Apply(neighbour.clone());
        world.planner.apply_pods(&scope, event);
    }
    let mut local = records(&[("10.0.0.2", "web")]);
    let in_b = PodName {
        namespace: "b".into(),
        name: "neighbour".into(),
    };
    local.pods.insert(address("10.0.0.3"), Some(in_b.into()));
    world.planner.set_local(local);
    world
}

/// Applies to every pod of namespace `b`.
pub fn of_neighbour(peers: Vec<Peer>) -> NetworkPolicy {
    NetworkPolicy {
        namespace: "b".into(),
        pod_selector: LabelSelector::default(),
        ..allow("other", peers, Vec::new())
    }
}

/// The policies that are refused.
pub fn refused(world: &World) -> Vec<String> {
    let refused = world.planner.model.refused();
    refused.iter().map(ToString::to_string).collect()
}

/// Many policies with a rule each are no way around the limit, and their namespace bears it:
/// those of another one, and of the cluster, are cut into as many pieces and keep theirs.
#[test]
fn a_namespace_bears_what_its_own_policies_cost() {
    const MAX: usize = 8_000;
    let mut world = two_namespaces();
    world.planner.model.limit_cost(MAX, 10 * MAX);
    world.planner.plan();
    let wide = vec![block("0.0.0.0/0", &["10.0.0.0/8"])];
    let events = [of_neighbour(wide)]
        .into_iter()
        .chain((0..200).map(|number| {
            let mut policy = all_but_one(&format!("one-{number:03}"), 200);
            policy.ingress = vec![policy.ingress[number].clone()];
            policy
        }));
    for policy in events {
        world.planner.apply_network_policies(Event::Apply(policy));
    }
    let denies = ClusterNetworkPolicy {
        name: "denies".into(),
        tier: "Admin".into(),
        subject: Subject::Namespaces(LabelSelector::default()),
        egress: vec![cluster::Rule {
            action: "Deny".into(),
            peers: vec![cluster::Peer::Networks(vec!["198.0.0.0/8".into()])],
            ..cluster::Rule::default()
        }],
        ..ClusterNetworkPolicy::default()
    };
    world
        .planner
        .apply_cluster_network_policies(Event::Apply(denies));
    world.planner.plan();
    let names = refused(&world);
    let is_of_a = |name: &String| name.starts_with("NetworkPolicy a/");
    assert_eq!(names.len(), 200);
    assert!(names.iter().all(is_of_a), "{names:?}");
    assert!(elements(world.planner.desired()) < 100);
    // Few enough of them may all be told apart.
    for number in 25..200 {
        let key = ObjectKey {
            namespace: "a".into(),
            name: format!("one-{number:03}"),
        };
        world.planner.apply_network_policies(Event::Delete(key));
        world.planner.plan();
    }
    world.settle();
    assert_eq!(refused(&world), Vec::<String>::new());
    assert!(reaches(&world, "198.51.100.1", 1024));
}

/// What others cost is nothing that a namespace is to blame for.
#[test]
fn a_list_from_elsewhere_costs_what_it_says() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(10_100, 10_200);
    world.planner.plan();
    // As published by a vendor: thousands of networks in a rule, which all have one identity.
    let cidrs = (0..5_000).map(|n| format!("198.{}.{}.0/25", n >> 8, n & 0xff));
    let networks = cidrs.map(|cidr| block(&cidr, &[])).collect();
    apply(&mut world, allow("vendor", networks, Vec::new()));
    let wide = vec![block("0.0.0.0/0", &["10.0.0.0/8"])];
    let policy = of_neighbour(wide);
    world.planner.apply_network_policies(Event::Apply(policy));
    world.planner.plan();
    assert_eq!(refused(&world), Vec::<String>::new());
    assert!(reaches(&world, "198.3.7.9", 80) && !reaches(&world, "198.3.7.200", 80));
}

/// Of the family that no pod here has they cost the agent's memory.
#[test]
fn networks_of_the_other_family_are_limited_too() {
    let mut world = world(Vec::new());
    let rule = |number: u16| Rule {
        peers: vec![block("::/0", &[&format!("2001:db8::{number:x}/128")])],
        ports: Vec::new(),
    };
    let policy = NetworkPolicy {
        ingress: (0..3_000).map(rule).collect(),
        ..allow("six", Vec::new(), Vec::new())
    };
    apply(&mut world, policy);
    assert_eq!(refused(&world), ["NetworkPolicy a/six"]);
    assert!(world.planner.desired().verdicts.networks.is_empty());
}

/// Each address then has all ports of the rule for everybody, and its own.
#[test]
fn ports_for_everybody_count_for_each_network() {
    let mut world = world(Vec::new());
    let port = |number: u16| tcp(PortMatch::Range(2 * number, 2 * number));
    let single = |number: u16| Rule {
        peers: vec![block(
            &format!("198.18.{}.{}/32", number >> 8, number & 0xff),
            &[],
        )],
        ports: vec![port(20_000 + number)],
    };
    let everybody = Rule {
        peers: Vec::new(),
        ports: (1..2_000).map(port).collect(),
    };
    let policy = NetworkPolicy {
        ingress: [everybody]
            .into_iter()
            .chain((0..2_000).map(single))
            .collect(),
        ..allow("square", Vec::new(), Vec::new())
    };
    apply(&mut world, policy);
    assert_eq!(refused(&world), ["NetworkPolicy a/square"]);
    assert!(elements(world.planner.desired()) < 10_000);
    assert!(!reaches(&world, "198.18.0.1", 2));
}

/// A policy of which each rule has a port of its own, for pods by one of twelve labels that each
/// have either of two values.
pub fn by_bits(name: &str, policy: usize, rules: usize) -> NetworkPolicy {
    let rule = |number: usize| {
        let (bit, value) = (number % 12, ["0", "1"][number / 12 % 2]);
        let port = u16::try_from(2 * (policy * rules + number) + 1).unwrap();
        Rule {
            peers: vec![pods(&[(&format!("b{bit}"), value)])],
            ports: vec![tcp(PortMatch::Range(port, port))],
        }
    };
    NetworkPolicy {
        ingress: (0..rules).map(rule).collect(),
        ..allow(name, Vec::new(), Vec::new())
    }
}

/// So many pods of namespace `a` on another node that no two have the same labels.
pub fn pods_by_bits(world: &mut World, count: usize) {
    for number in 0..count {
        let labels: Vec<(String, &str)> = (0..12)
            .map(|bit| (format!("b{bit}"), ["0", "1"][number >> bit & 1]))
            .collect();
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (&**key, *value)).collect();
        let ip = format!("10.0.1.{}", 20 + number);
        let pod = pod(&format!("bits-{number}"), "other", &ip, &labels);
        world.cluster.pods.push(pod.clone());
        world.planner.apply_pods(&PodScope::All, Event::Apply(pod));
    }
}

/// Many rules by few labels: each pod has a profile of its own with half of all ports.
#[test]
fn what_selectors_multiply_is_limited_like_networks() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(20_000, 40_000);
    apply(&mut world, of_neighbour(vec![block("0.0.0.0/0", &[])]));
    pods_by_bits(&mut world, 8);
    for policy in 0..20 {
        apply(&mut world, by_bits(&format!("bits-{policy}"), policy, 100));
    }
    assert_eq!(refused(&world), Vec::<String>::new());
    assert!(reaches(&world, "10.0.1.20", 1) && !reaches(&world, "10.0.1.21", 1));

    // Nothing of the policies changes, but there are more pods that they tell apart.
    pods_by_bits(&mut world, 64);
    world.planner.plan();
    assert_eq!(refused(&world).len(), 20);
    world.settle();
    assert!(!reaches(&world, "10.0.1.20", 1));
    assert!(elements(world.planner.desired()) < 1_000);
    assert_eq!(world.planner.problems().len(), 20);
    let neighbour = address("10.0.0.3");
    let why = world
        .planner
        .evaluate(address("198.51.100.1"), neighbour, TCP, 80);
    assert_eq!(why.ingress.verdict, Verdict::Allowed);

    // One policy has fewer rules: all of them count again.
    for policy in 5..20 {
        apply(&mut world, by_bits(&format!("bits-{policy}"), policy, 1));
    }
    assert_eq!(refused(&world), Vec::<String>::new());
    assert!(reaches(&world, "10.0.1.20", 1));
    assert!(world.planner.problems().is_empty());
}

/// All rules of a policy are for other pods: thousands of elements, in profiles that stay.
#[test]
fn an_edit_of_all_rules_of_a_policy_keeps_the_numbers_of_profiles() {
    let mut world = two_namespaces();
    pods_by_bits(&mut world, 64);
    for policy in 0..3 {
        apply(&mut world, by_bits(&format!("bits-{policy}"), policy, 100));
    }
    let mut edited = by_bits("bits-0", 0, 100);
    for at in 0..88 {
        edited.ingress[at].peers = edited.ingress[at + 12].peers.clone();
    }
    let event = Event::Apply(edited);
    world.planner.apply_network_policies(event);
    let Step::Delta(delta) = world.planner.plan() else {
        panic!("no delta");
    };
    let (exact, profiles) = (delta.ports.exact, delta.verdicts.profiles);
    assert!(exact.removed.len() + exact.added.len() > 5_000);
    assert!(profiles.removed.keys().eq(profiles.added.keys()));
}

/// Two namespaces that each stay within their limit.
#[test]
fn the_most_costly_namespace_bears_what_all_cost_together() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(50_000, 40_000);
    let rules = |name: &str, count: u16| {
        let wide = |number: u16| block("0.0.0.0/0", &[&format!("203.0.113.{number}/32")]);
        let rule = |number| Rule {
            peers: vec![wide(number)],
            ports: Vec::new(),
        };
        NetworkPolicy {
            ingress: (0..count).map(rule).collect(),
            ..allow(name, Vec::new(), Vec::new())
        }
    };
    let of_b = |count| NetworkPolicy {
        namespace: "b".into(),
        pod_selector: LabelSelector::default(),
        ..rules("other", count)
    };
    apply(&mut world, rules("one", 60));
    apply(&mut world, of_b(70));
    assert_eq!(refused(&world), Vec::<String>::new());
    apply(&mut world, rules("one", 130));
    assert_eq!(refused(&world), ["NetworkPolicy a/one"]);
    // The other one costs more now, and so bears it.
    apply(&mut world, of_b(138));
    assert_eq!(refused(&world), ["NetworkPolicy b/other"]);
    apply(&mut world, of_b(10));
    assert_eq!(refused(&world), Vec::<String>::new());
}

/// The cluster's policies bear what they cost, and deny too much rather than too little.
#[test]
fn policies_of_the_cluster_that_cost_too_much_accept_nothing() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(500, 1_000);
    apply(
        &mut world,
        allow("simple", vec![block("0.0.0.0/0", &[])], Vec::new()),
    );
    let policy = |name: &str, action: &str, networks: u16| ClusterNetworkPolicy {
        name: name.into(),
        tier: "Admin".into(),
        subject: Subject::Namespaces(LabelSelector::default()),
        egress: (0..networks)
            .map(|number| cluster::Rule {
                action: action.into(),
                peers: vec![cluster::Peer::Networks(vec![format!(
                    "198.18.{number}.0/24"
                )])],
                ..cluster::Rule::default()
            })
            .collect(),
        ..ClusterNetworkPolicy::default()
    };
    let allowed = |world: &World, to: &str| {
        let (from, to) = (address("10.0.0.2"), address(to));
        let why = world.planner.evaluate(from, to, TCP, 80);
        let plan = world
            .planner
            .desired()
            .verdicts
            .allows((from, to), Direction::Out, (TCP, 80));
        assert_eq!(plan, why.egress.verdict == Verdict::Allowed);
        plan
    };
    let event = |world: &mut World, policy| {
        let event = Event::Apply(policy);
        world.planner.apply_cluster_network_policies(event);
        world.settle();
    };
    event(&mut world, policy("denies", "Deny", 10));
    assert!(!allowed(&world, "198.18.3.1") && allowed(&world, "203.0.113.1"));
    event(&mut world, policy("denies", "Deny", 250));
    assert_eq!(refused(&world), ["ClusterNetworkPolicy denies"]);
    assert!(!allowed(&world, "198.18.3.1") && !allowed(&world, "203.0.113.1"));
    assert_eq!(world.planner.problems().len(), 1);
    event(&mut world, policy("denies", "Accept", 250));
    assert!(allowed(&world, "198.18.3.1") && allowed(&world, "203.0.113.1"));
}
