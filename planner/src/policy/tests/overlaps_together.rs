//! Networks of several namespaces and of the cluster, which together overlap more than can be
//! told apart.

use tweed_core::attachment::PodName;
use tweed_core::object::Event;
use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::{NetworkPolicy, PortMatch, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::LabelSelector;

use super::fixture::{address, allow, block, pod, records, tcp};
use super::overlaps::{apply, of_neighbour, refused, two_namespaces};
use super::world::World;
use crate::policy::model::pods::PodScope;

/// Two namespaces that each stay within their limit.
#[test]
fn what_namespaces_cost_together_is_limited_and_the_most_costly_bears_it() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(50_000, 20_000);
    world.planner.plan();
    let wide = |number: u16| block("0.0.0.0/0", &[&format!("203.0.113.{number}/32")]);
    let rule = |number| Rule {
        peers: vec![wide(number)],
        ports: Vec::new(),
    };
    let policy = NetworkPolicy {
        ingress: (0..40).map(rule).collect(),
        ..of_neighbour(Vec::new())
    };
    world.planner.apply_network_policies(Event::Apply(policy));
    let single = |number: u16| Rule {
        peers: vec![block(
            &format!("198.18.{}.{}/32", number >> 8, number & 0xff),
            &[],
        )],
        ports: Vec::new(),
    };
    let policy = NetworkPolicy {
        ingress: (0..2_000).map(single).collect(),
        ..allow("singles", Vec::new(), Vec::new())
    };
    world.planner.apply_network_policies(Event::Apply(policy));
    world.planner.plan();
    assert_eq!(refused(&world), ["NetworkPolicy a/singles"]);
}

/// A hundred networks with a port, and this many ports for everybody. The lists cost little, and
/// the ports that are allowed with them 101 for each.
fn ports(of: NetworkPolicy, count: u16) -> NetworkPolicy {
    let port = |number: u16| tcp(PortMatch::Range(2 * number, 2 * number));
    let single = |number: u16| Rule {
        peers: vec![block(&format!("198.18.{number}.0/24"), &[])],
        ports: vec![port(20_000)],
    };
    let everybody = Rule {
        peers: Vec::new(),
        ports: (1..=count).map(port).collect(),
    };
    NetworkPolicy {
        ingress: (0..100).map(single).chain([everybody]).collect(),
        ..of
    }
}

#[test]
fn ports_of_all_namespaces_are_limited_together() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(50_000, 50_000);
    let of_a = |count| ports(allow("ports", Vec::new(), Vec::new()), count);
    apply(&mut world, of_a(200));
    apply(&mut world, ports(of_neighbour(Vec::new()), 250));
    apply(&mut world, of_a(240));
    assert_eq!(refused(&world), Vec::<String>::new());
    apply(&mut world, of_a(260));
    assert_eq!(refused(&world), ["NetworkPolicy a/ports"]);
    // The other one costs more now, and so bears what this one costs.
    apply(&mut world, of_a(249));
    assert_eq!(refused(&world), ["NetworkPolicy b/other"]);
    apply(&mut world, of_a(100));
    assert_eq!(refused(&world), Vec::<String>::new());
}

#[test]
fn what_a_namespace_keeps_counts_beside_what_another_one_needs() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(60_000, 50_000);
    let small = NetworkPolicy {
        name: "small".into(),
        ..ports(of_neighbour(Vec::new()), 60)
    };
    let large = NetworkPolicy {
        name: "large".into(),
        ..ports(of_neighbour(Vec::new()), 200)
    };
    apply(
        &mut world,
        ports(allow("ports", Vec::new(), Vec::new()), 249),
    );
    apply(&mut world, large);
    assert_eq!(refused(&world), Vec::<String>::new());
    // Its ports for everybody are allowed with the networks of the large one, too.
    apply(&mut world, small);
    let both = ["NetworkPolicy b/large", "NetworkPolicy b/small"];
    assert_eq!(refused(&world), both);
}

/// No list of peers changes, and still there is more for each of them.
#[test]
fn a_pod_with_policies_of_its_own_counts() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(60_000, 50_000);
    apply(
        &mut world,
        ports(allow("ports", Vec::new(), Vec::new()), 249),
    );
    apply(&mut world, ports(of_neighbour(Vec::new()), 200));
    let labelled = selecting("role", "web", of_neighbour(Vec::new()));
    let labelled = NetworkPolicy {
        ingress: vec![Rule::default()],
        ..labelled
    };
    apply(&mut world, labelled);
    assert_eq!(refused(&world), Vec::<String>::new());
    pods_of_b(
        &mut world,
        [("10.0.0.3", &[]), ("10.0.0.4", &[("role", "web")])],
    );
    assert_eq!(refused(&world), ["NetworkPolicy b/other"]);
}

/// The pods of namespace `b` here, by address with labels.
fn pods_of_b(world: &mut World, pods: [(&str, &[(&str, &str)]); 2]) {
    let mut local = records(&[("10.0.0.2", "web")]);
    for (ip, labels) in pods {
        let pod = Pod {
            namespace: "b".into(),
            ..pod(ip, "me", ip, labels)
        };
        for scope in [PodScope::Own, PodScope::All] {
            world.planner.apply_pods(&scope, Event::Apply(pod.clone()));
        }
        let name = PodName {
            namespace: "b".into(),
            name: ip.into(),
        };
        local.pods.insert(address(ip), Some(name.into()));
    }
    world.planner.set_local(local);
    world.planner.plan();
}

/// The policy for pods with a label, whose value is its name.
fn selecting(label: &str, value: &str, policy: NetworkPolicy) -> NetworkPolicy {
    NetworkPolicy {
        name: value.into(),
        pod_selector: LabelSelector {
            match_labels: [(label.to_owned(), value.to_owned())].into(),
            ..LabelSelector::default()
        },
        ..policy
    }
}

/// What all cost stays the same, but not what they cost that may keep their networks.
#[test]
fn which_policies_meet_on_a_pod_counts() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(60_000, 15_000);
    let of_b = |count| ports(of_neighbour(Vec::new()), count);
    let mut many = of_b(200);
    many.ingress = many.ingress.split_off(100);
    apply(&mut world, selecting("net", "first", of_b(1)));
    apply(&mut world, selecting("net", "second", of_b(2)));
    apply(&mut world, selecting("ports", "many", many));
    let (p, q) = ("10.0.0.3", "10.0.0.4");
    let (first, second) = (("net", "first"), ("net", "second"));
    let many = ("ports", "many");
    pods_of_b(&mut world, [(p, &[first, many]), (q, &[second])]);
    let both = ["NetworkPolicy b/first", "NetworkPolicy b/second"];
    assert_eq!(refused(&world), both);
    pods_of_b(&mut world, [(p, &[first]), (q, &[second, many])]);
    assert_eq!(refused(&world), ["NetworkPolicy b/second"]);
}

/// A namespace has many ports for everybody, and the cluster's policies many networks: neither
/// loses any for that, nor does a namespace lose its one network, which costs little.
#[test]
fn networks_of_the_cluster_cost_a_namespace_nothing() {
    let mut world = two_namespaces();
    world.planner.model.limit_cost(500, 1_000);
    let port = |number: u16| PortMatch::Range(2 * number, 2 * number);
    let rule = |number: u16| cluster::Rule {
        action: "Accept".into(),
        peers: vec![cluster::Peer::Networks(vec![format!(
            "198.18.{number}.0/24"
        )])],
        protocols: vec![cluster::Protocol::Ports {
            protocol: "TCP".into(),
            port: port(10_000 + number),
        }],
        ..cluster::Rule::default()
    };
    let of_cluster = ClusterNetworkPolicy {
        name: "networks".into(),
        tier: "Admin".into(),
        subject: Subject::Namespaces(LabelSelector::default()),
        egress: (0..10).map(rule).collect(),
        ..ClusterNetworkPolicy::default()
    };
    world
        .planner
        .apply_cluster_network_policies(Event::Apply(of_cluster));
    let egress = |name, rule| NetworkPolicy {
        policy_types: vec!["Egress".into()],
        ingress: Vec::new(),
        egress: vec![rule],
        ..allow(name, Vec::new(), Vec::new())
    };
    let everybody = Rule {
        peers: Vec::new(),
        ports: (1..=100).map(|number| tcp(port(number))).collect(),
    };
    apply(&mut world, egress("many", everybody));
    let one = Rule {
        peers: vec![block("203.0.113.0/24", &[])],
        ports: Vec::new(),
    };
    apply(&mut world, egress("one", one));
    assert_eq!(refused(&world), Vec::<String>::new());
}
