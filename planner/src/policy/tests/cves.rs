//! Ways in which policies of other networks let pass what they forbid: `SECURITY.md` has
//! the CVE of each.

use tweed_core::object::Event;
use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy};
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, PortMatch, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::{LabelSelector, Operator, Requirement};

use super::fixture::*;
use super::walk::{Flow, passes};
use super::world::{World, labels};
use crate::policy::model::pods::PodScope;
use crate::policy::verdicts::Direction;

/// One of the tier `Admin` about all pods. The first by priority is the last by name.
fn admin(priority: i64, egress: Vec<cluster::Rule>) -> ClusterNetworkPolicy {
    ClusterNetworkPolicy {
        name: format!("p{:04}", 1000 - priority),
        tier: "Admin".into(),
        priority,
        subject: cluster::Subject::Namespaces(LabelSelector::default()),
        egress,
        ..ClusterNetworkPolicy::default()
    }
}

fn rule(action: &str, peer: cluster::Peer) -> cluster::Rule {
    cluster::Rule {
        action: action.into(),
        peers: vec![peer],
        ..cluster::Rule::default()
    }
}

/// A rule for all pods about ports of TCP.
fn of_ports(action: &str, first: u16, last: u16) -> cluster::Rule {
    cluster::Rule {
        protocols: vec![cluster::Protocol::Ports {
            protocol: "TCP".into(),
            port: PortMatch::Range(first, last),
        }],
        ..rule(action, cluster::Peer::Namespaces(LabelSelector::default()))
    }
}

fn networks(cidrs: &[&str]) -> cluster::Peer {
    cluster::Peer::Networks(cidrs.iter().map(|one| (*one).to_owned()).collect())
}

fn apply(world: &mut World, policies: impl IntoIterator<Item = ClusterNetworkPolicy>) {
    for policy in policies {
        let event = Event::Apply(policy);
        world.planner.apply_cluster_network_policies(event);
    }
    world.planner.plan();
}

/// Whether a TCP packet of the pod `web` may leave.
fn sends(world: &World, to: &str, port: u16) -> bool {
    let to = address(to);
    let from = if to.is_ipv4() { "10.0.0.2" } else { "fd00::2" };
    let flow = Flow {
        from: address(from),
        to,
        protocol: TCP,
        port,
    };
    passes(world.planner.desired(), Direction::Out, flow)
}

#[test]
fn labels_of_a_pod_are_not_those_of_its_namespace() {
    let of = |pairs| Peer::Pods {
        namespace: Some(selector(pairs)),
        pod: None,
    };
    let peers = vec![
        of(&[(Namespace::NAME_LABEL, "b")]),
        of(&[("trusted", "yes")]),
    ];
    let mut world = world(vec![allow("one", peers, Vec::new())]);
    let says_b = [
        (Namespace::NAME_LABEL, "b"),
        ("io.kubernetes.pod.namespace", "b"),
        ("trusted", "yes"),
        ("app", "web"),
    ];
    let mut tell = |scope: &PodScope, pod: Pod| world.planner.apply_pods(scope, Event::Apply(pod));
    tell(&PodScope::All, pod("says", "other", "10.0.1.8", &says_b));
    let is = Pod {
        namespace: "b".into(),
        ..pod("is", "other", "10.0.1.9", &[])
    };
    tell(&PodScope::All, is);
    // Nor does a pod so leave the policies of its namespace.
    for scope in [PodScope::Own, PodScope::All] {
        tell(&scope, pod("web", "me", "10.0.0.2", &says_b));
    }
    world.planner.plan();
    assert!(!reaches(&world, "10.0.1.8", 80));
    assert!(!reaches(&world, "10.0.1.2", 80));
    assert!(reaches(&world, "10.0.1.9", 80));
}

#[test]
fn a_policy_is_about_no_pods_of_another_namespace() {
    let all_of_b = |ingress| NetworkPolicy {
        namespace: "b".into(),
        name: "all".into(),
        pod_selector: LabelSelector {
            match_expressions: vec![Requirement {
                key: "reserved:init".into(),
                operator: Operator::DoesNotExist,
                values: Vec::new(),
            }],
            ..LabelSelector::default()
        },
        policy_types: vec!["Ingress".into()],
        ingress,
        ..NetworkPolicy::default()
    };
    let nobody = allow("nobody", vec![pods(&[("app", "nobody")])], Vec::new());
    let opened = world(vec![nobody, all_of_b(vec![Rule::default()])]);
    assert!(!reaches(&opened, "10.0.1.2", 80));
    let closed = world(vec![all_of_b(Vec::new())]);
    assert!(reaches(&closed, "10.0.1.2", 80));
}

#[test]
fn a_network_that_is_denied_first_stays_closed_where_a_part_of_it_is_allowed() {
    let narrow = ["198.51.100.2/32", "2001:db8::2/128"];
    let mut of_namespace = allow("narrow", Vec::new(), Vec::new());
    of_namespace.policy_types = vec!["Egress".into()];
    of_namespace.ingress.clear();
    of_namespace.egress.push(Rule {
        peers: narrow.iter().map(|one| block(one, &[])).collect(),
        ports: Vec::new(),
    });
    let mut objects = world(vec![of_namespace]).cluster;
    objects.pods[0].addresses.push("fd00::2".into());
    let mut world = World::new(objects);
    world.planner.plan();
    assert!(sends(&world, "198.51.100.2", 80) && sends(&world, "2001:db8::2", 80));

    let wide = networks(&["198.51.0.0/16", "2001:db8::/32"]);
    let everything = networks(&["0.0.0.0/0", "::/0"]);
    let later = vec![
        rule("Accept", networks(&narrow)),
        rule("Accept", everything),
    ];
    apply(
        &mut world,
        [admin(1, vec![rule("Deny", wide)]), admin(2, later)],
    );
    for (to, is_sent) in [
        ("198.51.100.2", false),
        ("198.51.7.7", false),
        ("203.0.113.1", true),
        ("2001:db8::2", false),
        ("2001:db8:7::7", false),
        ("2001:4860::1", true),
    ] {
        assert_eq!(sends(&world, to, 80), is_sent, "{to}");
    }
}

#[test]
fn a_range_of_ports_neither_opens_nor_closes_what_comes_before_it() {
    for (first, then, single, others) in [
        ("Deny", "Accept", false, true),
        ("Accept", "Deny", true, false),
    ] {
        let mut world = world(Vec::new());
        let of = |priority, rule| ClusterNetworkPolicy {
            ingress: vec![rule],
            ..admin(priority, Vec::new())
        };
        let policies = [
            of(1, of_ports(first, 80, 80)),
            of(2, of_ports(then, 1, 1000)),
            of(3, of_ports("Deny", 1, 65535)),
        ];
        apply(&mut world, policies);
        assert_eq!(reaches(&world, "10.0.1.2", 80), single, "{first}");
        for port in [1, 79, 81, 1000] {
            assert_eq!(reaches(&world, "10.0.1.2", port), others, "{first} {port}");
        }
        assert!(!reaches(&world, "10.0.1.2", 1001), "{first}");
    }
}

#[test]
fn a_pod_with_the_labels_of_a_node_is_no_node() {
    let mut world = world(Vec::new());
    let says = pod("says", "other", "10.0.1.8", &[("zone", "one")]);
    world.planner.apply_pods(&PodScope::All, Event::Apply(says));
    let mut namespace = world.cluster.namespaces[0].clone();
    namespace.labels = labels(&[("zone", "one")]);
    world.planner.apply_namespaces(Event::Apply(namespace));
    let nodes = cluster::Peer::Nodes(selector(&[("zone", "one")]));
    let egress = vec![
        rule("Accept", nodes),
        rule("Deny", networks(&["0.0.0.0/0"])),
    ];
    apply(&mut world, [admin(1, egress)]);
    assert!(sends(&world, "192.0.2.2", 80));
    assert!(!sends(&world, "10.0.1.8", 80));
}

#[test]
fn a_block_allows_no_pods_of_the_policys_namespace() {
    let outside = vec![block("203.0.113.0/24", &[])];
    let world = world(vec![allow("one", outside, Vec::new())]);
    assert!(reaches(&world, "203.0.113.9", 80));
    assert!(!reaches(&world, "10.0.1.2", 80), "a pod of the namespace");
}

#[test]
fn peers_that_are_nobody_are_not_everybody() {
    let nobody = || vec![pods(&[("app", "nobody")])];
    let mut policy = allow("one", nobody(), Vec::new());
    policy.policy_types.push("Egress".into());
    policy.egress.push(Rule {
        peers: nobody(),
        ports: Vec::new(),
    });
    let world = world(vec![policy]);
    for other in ["10.0.1.2", "203.0.113.9"] {
        assert!(!reaches(&world, other, 80), "{other}");
        assert!(!sends(&world, other, 80), "{other}");
    }
}

/// Policy 0 decides about port 2000, policy 1 about 1999 too, and so on.
#[test]
fn policies_of_all_priorities_keep_their_order() {
    let accepts = |priority: i64| priority % 2 == 0;
    let mut world = world(Vec::new());
    let policies = (0..=1000).map(|priority: i64| {
        let action = if accepts(priority) { "Accept" } else { "Deny" };
        let first = 2000 - u16::try_from(priority).unwrap();
        ClusterNetworkPolicy {
            ingress: vec![of_ports(action, first, 2000)],
            ..admin(priority, Vec::new())
        }
    });
    apply(&mut world, policies);
    for priority in 0..=1000 {
        let port = 2000 - u16::try_from(priority).unwrap();
        let passes = reaches(&world, "10.0.1.2", port);
        assert_eq!(passes, accepts(priority), "{priority}");
    }
}
