//! Single cases, told to a planner as a cluster tells them: what packets pass.

use super::fixture::*;
use tweed_core::attachment::PodName;
use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy};
use tweed_core::object::network_policy::{Peer, Port, PortMatch};
use tweed_core::object::pod::NamedPort;
use tweed_core::object::selector::{Operator, Requirement};
use tweed_core::object::{Event, Object};
use tweed_core::problem::ProblemKind;

use super::world::{World, labels};
use crate::policy::Step;
use crate::policy::evaluate::{Decision, Verdict};
use crate::policy::model::local::{LocalPod, LocalPods};
use crate::policy::model::pods::PodScope;
use crate::policy::planner::PolicyPlanner;

#[test]
fn row_4_named_ports_are_those_of_the_destination_and_follow_it() {
    let named = vec![tcp(PortMatch::Named("http".into()))];
    let mut world = world(vec![allow("one", Vec::new(), named)]);
    assert!(
        !reaches(&world, "10.0.1.2", 80),
        "no pod port has this name"
    );
    for port in [80, 8080] {
        let mut web = world.cluster.pods[0].clone();
        web.ports = vec![NamedPort {
            name: "http".into(),
            protocol: "TCP".into(),
            port,
        }];
        world.planner.apply_pods(&PodScope::Own, Event::Apply(web));
        world.planner.plan();
        assert_eq!(reaches(&world, "10.0.1.2", 80), port == 80);
        assert_eq!(reaches(&world, "10.0.1.2", 8080), port == 8080);
    }
}

#[test]
fn row_5_an_address_used_again_is_the_newer_pods() {
    let mut world = world(vec![allow(
        "one",
        vec![pods(&[("app", "client")])],
        Vec::new(),
    )]);
    let old = world.cluster.pods[1].clone();
    let mut new = pod("new", "other", "10.0.1.2", &[("app", "other")]);
    new.created = Some(2);
    world
        .planner
        .apply_pods(&PodScope::All, Event::Apply(new.clone()));
    world.planner.plan();
    assert!(!reaches(&world, "10.0.1.2", 1));
    world
        .planner
        .apply_pods(&PodScope::All, Event::Delete(old.key()));
    world.planner.plan();
    assert!(
        !reaches(&world, "10.0.1.2", 1),
        "a late delete harms nothing"
    );

    let mut finished = pod("job", "other", "10.0.1.9", &[("app", "client")]);
    world
        .planner
        .apply_pods(&PodScope::All, Event::Apply(finished.clone()));
    world.planner.plan();
    assert!(reaches(&world, "10.0.1.9", 1));
    finished.finished = true;
    world
        .planner
        .apply_pods(&PodScope::All, Event::Apply(finished));
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert!(!reaches(&world, "10.0.1.9", 1));
}

#[test]
fn row_8_ten_thousand_overlapping_cidrs_become_disjoint_networks() {
    let wide = (0..10_000).map(|number: u32| {
        let cidr = format!("10.{}.{}.0/{}", number % 200, number / 200, 16 + number % 9);
        block(&cidr, &[])
    });
    let mut peers: Vec<Peer> = wide.collect();
    peers.push(block("0.0.0.0/0", &["10.0.0.0/8", "10.7.7.7/32"]));
    let world = world(vec![
        allow("many", peers, vec![tcp(PortMatch::Range(1, 1))]),
        allow(
            "all",
            vec![block("0.0.0.0/0", &["10.7.0.0/16"])],
            vec![tcp(PortMatch::Range(2, 2))],
        ),
    ]);
    let spans: Vec<_> = world.planner.desired().verdicts.networks.keys().collect();
    assert!(spans.windows(2).all(|two| two[0].last < two[1].first));
    assert!(
        reaches(&world, "10.7.7.7", 1),
        "allowed by a CIDR, whatever another excepts"
    );
    assert!(!reaches(&world, "10.7.7.7", 2));
    assert!(reaches(&world, "203.0.113.1", 1) && reaches(&world, "203.0.113.1", 2));
    assert!(
        reaches(&world, "10.0.1.2", 2),
        "a pod's address is inside the CIDR too"
    );
}

#[test]
fn row_9_a_policy_of_sctp_only_isolates_tcp() {
    let sctp = Port {
        protocol: "SCTP".into(),
        port: PortMatch::Range(80, 80),
    };
    let world = world(vec![allow("one", Vec::new(), vec![sctp])]);
    assert!(!reaches(&world, "10.0.1.2", 80));
    assert_eq!(world.planner.desired().ports.exact.len(), 1);
}

#[test]
fn row_10_a_namespace_label_evaluates_all_its_pods_anew() {
    let of = Peer::Pods {
        namespace: Some(selector(&[("trusted", "yes")])),
        pod: None,
    };
    let mut world = world(vec![allow("one", vec![of], Vec::new())]);
    let addresses: Vec<String> = (2..52).map(|host| format!("10.0.1.{host}")).collect();
    for (number, address) in addresses.iter().enumerate().skip(1) {
        let other = pod(&format!("other{number}"), "other", address, &[]);
        world
            .planner
            .apply_pods(&PodScope::All, Event::Apply(other));
    }
    world.planner.plan();
    let reach = |world: &World| -> Vec<bool> {
        let each = addresses.iter();
        each.map(|address| reaches(world, address, 1)).collect()
    };
    assert_eq!(reach(&world), [false; 50]);
    let mut namespace = world.cluster.namespaces[0].clone();
    namespace.labels = labels(&[("trusted", "yes")]);
    world.planner.apply_namespaces(Event::Apply(namespace));
    // One delta is one transaction.
    assert!(!delta(&mut world.planner).verdicts.takes_away);
    assert_eq!(reach(&world), [true; 50]);
    assert_eq!(world.planner.plan(), Step::Unchanged);
}

#[test]
fn the_overlay_address_of_a_node_counts_as_the_node() {
    let world = world(vec![allow(
        "one",
        vec![block("192.0.2.2/32", &[])],
        Vec::new(),
    )]);
    assert!(reaches(&world, "10.0.1.0", 1));
    assert!(!reaches(&world, "10.0.1.2", 1));
}

#[test]
fn row_8_blocks_and_exceptions_mean_a_node_by_its_own_addresses() {
    for (cidr, except) in [
        ("0.0.0.0/0", "192.0.2.0/24"),
        ("0.0.0.0/0", "192.0.2.2/32"),
        ("10.0.0.0/8", "192.0.2.2/32"),
        ("10.0.0.0/16", "198.51.100.0/24"),
    ] {
        let world = world(vec![allow("one", vec![block(cidr, &[except])], Vec::new())]);
        let seen = format!("{cidr} except {except}");
        assert!(!reaches(&world, "10.0.1.0", 1), "{seen}");
        assert!(reaches(&world, "10.0.1.2", 1), "{seen}: a pod of that node");
    }
    let pods = block("0.0.0.0/0", &["10.0.0.0/16"]);
    let world_of_pods = world(vec![allow("pods", vec![pods], Vec::new())]);
    assert!(
        reaches(&world_of_pods, "10.0.1.0", 1),
        "an exception of the pods' range is not one of the Node"
    );
    assert!(!reaches(&world_of_pods, "10.0.1.2", 1));
    let other = vec![
        block("0.0.0.0/0", &["192.0.2.0/24"]),
        block("192.0.2.2/32", &[]),
    ];
    let world = world(vec![allow("two", other, Vec::new())]);
    assert!(
        reaches(&world, "10.0.1.0", 1),
        "another block without exceptions has it"
    );
}

#[test]
fn row_8_exceptions_of_a_nodes_address_come_go_and_follow_the_node() {
    let everybody = |except: &[&str]| allow("one", vec![block("0.0.0.0/0", except)], Vec::new());
    let mut world = world(vec![everybody(&[])]);
    assert!(reaches(&world, "10.0.1.0", 1));
    let apply = |world: &mut World, policy| {
        world.planner.apply_network_policies(Event::Apply(policy));
        delta(&mut world.planner)
    };
    assert!(
        apply(&mut world, everybody(&["192.0.2.0/24"]))
            .verdicts
            .takes_away
    );
    assert!(!reaches(&world, "10.0.1.0", 1));
    assert_eq!(world.planner.plan(), Step::Unchanged);

    world.cluster.nodes[0].addresses[0].address = "198.51.100.2".into();
    world.set_nodes();
    assert!(!delta(&mut world.planner).verdicts.takes_away);
    assert!(reaches(&world, "10.0.1.0", 1), "the Node has moved");

    apply(&mut world, everybody(&["198.51.100.2/32"]));
    assert!(!reaches(&world, "10.0.1.0", 1));
    assert!(!apply(&mut world, everybody(&[])).verdicts.takes_away);
    assert!(reaches(&world, "10.0.1.0", 1));
}

#[test]
fn row_15_what_cannot_be_represented_allows_nothing_and_is_said() {
    let mut operator = allow("operator", Vec::new(), Vec::new());
    operator.pod_selector.match_expressions.push(Requirement {
        key: "app".into(),
        operator: Operator::Unknown("Like".into()),
        values: Vec::new(),
    });
    let world = world(vec![
        operator,
        allow("cidr", vec![block("10.0.0.0/99", &[])], Vec::new()),
        allow(
            "port",
            Vec::new(),
            vec![tcp(PortMatch::Invalid("x".into()))],
        ),
        allow(
            "good",
            vec![pods(&[("app", "client")])],
            vec![tcp(PortMatch::Range(7, 7))],
        ),
    ]);
    assert!(reaches(&world, "10.0.1.2", 7) && !reaches(&world, "10.0.1.2", 8));
    let problems = world.planner.problems();
    let names: Vec<&str> = problems.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(
        names,
        [
            "NetworkPolicy a/cidr",
            "NetworkPolicy a/operator",
            "NetworkPolicy a/port"
        ]
    );
    assert!(
        problems
            .iter()
            .all(|one| one.kind == ProblemKind::PolicyUnsupported)
    );
}

#[test]
fn a_pod_to_itself_is_evaluated_by_cluster_policies_only() {
    let mut world = world(vec![allow(
        "none",
        vec![pods(&[("app", "nobody")])],
        Vec::new(),
    )]);
    assert!(reaches(&world, "10.0.0.2", 80));
    let all = || selector(&[]);
    world
        .planner
        .apply_cluster_network_policies(Event::Apply(ClusterNetworkPolicy {
            name: "deny".into(),
            tier: "Admin".into(),
            subject: cluster::Subject::Namespaces(all()),
            ingress: vec![cluster::Rule {
                action: "Deny".into(),
                peers: vec![cluster::Peer::Namespaces(all())],
                ..cluster::Rule::default()
            }],
            ..ClusterNetworkPolicy::default()
        }));
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert!(!reaches(&world, "10.0.0.2", 80));
}

#[test]
fn a_pod_that_is_not_known_yet_is_isolated_and_why_says_so() {
    let mut world = world(vec![allow("one", Vec::new(), Vec::new())]);
    let web = world.cluster.pods[0].clone();
    let (from, to) = (address("10.0.1.2"), address("10.0.0.2"));
    let why = world.planner.evaluate(from, to, TCP, 80);
    assert_eq!(why.egress.verdict, Verdict::Allowed);
    assert_eq!(why.ingress.verdict, Verdict::Allowed);
    assert!(matches!(
        why.ingress.decision,
        Decision::Rule { rule: 0, .. }
    ));
    for scope in [PodScope::Own, PodScope::All] {
        world.planner.apply_pods(&scope, Event::Delete(web.key()));
    }
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert!(
        !world
            .planner
            .desired()
            .verdicts
            .enforced
            .contains(&address("10.0.0.2"))
    );
    let why = world.planner.evaluate(from, to, TCP, 80);
    assert_eq!(why.ingress.decision, Decision::NotYetKnown);
}

/// A pod of a StatefulSet comes back under its name, with other labels; the watch of
/// Pods is late.
#[test]
fn a_pod_is_not_enforced_by_the_labels_of_an_earlier_one_of_its_name() {
    let mut world = world(vec![allow("one", Vec::new(), Vec::new())]);
    let mut web = world.cluster.pods[0].clone();
    let enforced = |planner: &PolicyPlanner| {
        planner
            .desired()
            .verdicts
            .enforced
            .contains(&address("10.0.0.2"))
    };
    for (in_api, mirror, in_record, is_enforced) in [
        ("old", None, Some("old"), true),
        ("old", None, Some("new"), false),
        ("new", None, Some("new"), true),
        ("new", None, None, true),
        ("", None, Some("new"), true),
        // A static pod: the API server gives its mirror another UID.
        ("new", Some("hash"), Some("hash"), true),
        ("new", Some("hash"), Some("new"), false),
        ("new", Some("hash"), Some("other"), false),
    ] {
        web.uid = in_api.into();
        web.mirror = mirror.map(str::to_owned);
        for scope in [PodScope::Own, PodScope::All] {
            world.planner.apply_pods(&scope, Event::Apply(web.clone()));
        }
        let name = PodName {
            namespace: "a".into(),
            name: "web".into(),
        };
        let uid = in_record.map(str::to_owned);
        world.planner.set_local(LocalPods {
            pods: [(address("10.0.0.2"), Some(LocalPod { name, uid }))].into(),
            ..LocalPods::default()
        });
        world.planner.plan();
        let case = format!("{in_api} {mirror:?} {in_record:?}");
        assert_eq!(enforced(&world.planner), is_enforced, "{case}");
        let (from, to) = (address("10.0.1.2"), address("10.0.0.2"));
        let why = world.planner.evaluate(from, to, TCP, 80);
        let not_yet = why.ingress.decision == Decision::NotYetKnown;
        assert_eq!(not_yet, !is_enforced, "{case}");
    }
}

/// Each change that takes something away has all flows evaluated once more, and every 15th has
/// the kernel walk through all connections: no ADD may cost that.
#[test]
fn row_17_a_new_pod_that_policies_are_about_takes_nothing_away() {
    let clients = vec![pods(&[("app", "client")])];
    let mut world = world(vec![allow("one", clients, Vec::new())]);
    let both = [("10.0.0.2", "web"), ("10.0.0.3", "replica")];
    world.planner.set_local(records(&both[..1]));
    world.planner.plan();
    let replica = pod("replica", "me", "10.0.0.3", &[("app", "web")]);
    let scopes = [PodScope::Own, PodScope::All];
    for scope in &scopes {
        let event = Event::Apply(replica.clone());
        world.planner.apply_pods(scope, event);
    }
    world.planner.set_local(records(&both));
    let comes = delta(&mut world.planner);
    assert!(
        comes
            .verdicts
            .enforced
            .added
            .contains_key(&address("10.0.0.3"))
    );
    assert!(!comes.verdicts.policed.ingress.added.is_empty());
    assert!(!comes.verdicts.takes_away);
    // With it goes all that it had.
    world.planner.set_local(records(&both[..1]));
    for scope in &scopes {
        let event = Event::Delete(replica.key());
        world.planner.apply_pods(scope, event);
    }
    let goes = delta(&mut world.planner);
    assert_eq!(goes.verdicts.selves.removed.len(), 1);
    assert_eq!(world.planner.desired().verdicts.selves.len(), 1);
}
