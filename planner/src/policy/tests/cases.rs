//! Single cases, told to a planner as a cluster tells them: what it waits for, and what changes.

use super::fixture::*;
use super::properties::sizes;
use super::walk::{Flow, passes};
use super::world::{World, labels};
use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{Peer, PortMatch};
use tweed_core::object::{Event, Loss, Object};

use crate::policy::PolicyKinds;
use crate::policy::model::local::LocalPods;
use crate::policy::model::pods::PodScope;
use crate::policy::model::wants::Wants;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::Direction;

#[test]
fn without_a_policy_nothing_is_wanted_and_nothing_watched() {
    let mut planner = PolicyPlanner::new("me");
    assert!(matches!(planner.plan(), Step::Hold(_)));
    for event in [Event::Init, Event::InitDone] {
        planner.apply_network_policies(event);
    }
    assert!(matches!(planner.plan(), Step::Hold(_)));
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    assert_eq!(planner.plan(), Step::Full);
    assert!(!planner.desired().verdicts.active);
    assert_eq!(planner.wants(), Wants::default());
    assert_eq!(planner.plan(), Step::Unchanged);
}

#[test]
fn the_last_policy_that_goes_takes_everything_with_it() {
    let policy = allow("one", vec![pods(&[])], Vec::new());
    let mut world = world(vec![policy.clone()]);
    assert!(world.planner.desired().verdicts.active);
    world
        .planner
        .apply_network_policies(Event::Delete(policy.key()));
    assert_eq!(world.planner.plan(), Step::Full);
    assert_eq!(world.planner.desired(), &crate::policy::Desired::default());
}

#[test]
fn row_18_pods_of_others_are_wanted_only_for_policies_that_apply_here() {
    let mut elsewhere = allow("elsewhere", vec![pods(&[])], Vec::new());
    elsewhere.pod_selector = selector(&[("app", "elsewhere")]);
    let mut world = world(vec![
        elsewhere,
        allow("cidr", vec![block("10.0.0.0/8", &[])], Vec::new()),
    ]);
    let wants = world.planner.wants();
    assert!(wants.namespaces && wants.pods.contains(&PodScope::Own));
    assert!(world.planner.model.peers.is_empty());

    let one = allow("pods", vec![pods(&[])], Vec::new());
    world.planner.apply_network_policies(Event::Apply(one));
    world.planner.plan();
    let of_a = PodScope::Namespace("a".to_owned());
    assert_eq!(world.planner.model.peers, [of_a].into());
}

/// The pod `web` may be reached from 203.0.113.0/24 by policy `one`, which then says that
/// it is the clients, at port 80: these are not listed.
fn waiting_world() -> World {
    let outside = block("203.0.113.0/24", &[]);
    let mut world = world(vec![allow("one", vec![outside], Vec::new())]);
    world.planner.drop_scope(&PodScope::All);
    assert_eq!(world.planner.plan(), Step::Unchanged);
    let port = tcp(PortMatch::Range(80, 80));
    let policy = allow("one", vec![pods(&[("app", "client")])], vec![port]);
    world.planner.apply_network_policies(Event::Apply(policy));
    delta(&mut world.planner);
    world
}

fn list_clients(world: &mut World) {
    let scope = PodScope::Namespace("a".into());
    let client = Event::InitApply(world.cluster.pods[1].clone());
    for event in [Event::Init, client, Event::InitDone] {
        world.planner.apply_pods(&scope, event);
    }
}

#[test]
fn a_policy_that_waits_for_a_list_refuses_nothing_that_only_the_list_can_refuse() {
    let mut world = waiting_world();
    let waits = "NetworkPolicy a/one waits for the list of the pods of Namespace a";
    assert_eq!(world.planner.held(), [waits]);
    assert!(!world.planner.holds_all());
    assert!(reaches(&world, "203.0.113.1", 80), "it may be a client");
    assert!(!reaches(&world, "203.0.113.1", 81), "not even clients may");
    assert!(
        !reaches(&world, "10.0.1.2", 80),
        "it is not known as a client"
    );
    // What another policy refuses is refused.
    let deny = ClusterNetworkPolicy {
        name: "admin".to_owned(),
        tier: "Admin".to_owned(),
        subject: Subject::Namespaces(selector(&[])),
        ingress: vec![cluster::Rule {
            name: String::new(),
            action: "Deny".to_owned(),
            peers: vec![cluster::Peer::Namespaces(selector(&[]))],
            protocols: Vec::new(),
        }],
        ..ClusterNetworkPolicy::default()
    };
    let kept = world.planner.desired().clone();
    let planner = &mut world.planner;
    planner.apply_cluster_network_policies(Event::Apply(deny.clone()));
    planner.plan();
    assert_eq!(world.planner.held().len(), 2, "{:?}", world.planner.held());
    let planner = &mut world.planner;
    planner.apply_cluster_network_policies(Event::Delete(deny.key()));
    planner.plan();
    assert_eq!(sizes(world.planner.desired()), sizes(&kept));

    list_clients(&mut world);
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert_eq!(world.planner.held(), [""; 0]);
    assert!(reaches(&world, "10.0.1.2", 80) && !reaches(&world, "203.0.113.1", 80));
}

#[test]
fn the_rules_before_decide_by_their_own_lists_while_a_policy_waits() {
    let mut world = waiting_world();
    list_clients(&mut world);
    delta(&mut world.planner);
    assert!(reaches(&world, "10.0.1.2", 80) && !reaches(&world, "10.0.1.3", 80));
    // Then it is about the pods of another namespace, which are not listed.
    let other = Namespace {
        name: "b".to_owned(),
        labels: labels(&[("team", "b")]),
        ..Namespace::default()
    };
    world.planner.apply_namespaces(Event::Apply(other));
    let peer = Peer::Pods {
        namespace: Some(selector(&[("team", "b")])),
        pod: None,
    };
    let port = tcp(PortMatch::Range(80, 80));
    let policy = allow("one", vec![peer], vec![port]);
    world.planner.apply_network_policies(Event::Apply(policy));
    world.planner.plan();
    assert_eq!(world.planner.held().len(), 1);
    let of_a = PodScope::Namespace("a".into());
    assert_eq!(world.planner.model.kept, [of_a.clone()].into());
    assert!(
        !reaches(&world, "10.0.1.2", 80),
        "it is a pod of a, whatever pods b has"
    );
    assert!(!reaches(&world, "10.0.1.3", 80));
    // What becomes of the pods of a is still heard of: two policies may be about both.
    let more = pod("client2", "other", "10.0.1.3", &[("app", "client")]);
    world.planner.apply_pods(&of_a, Event::Apply(more));
    let gone = world.cluster.pods[1].key();
    world.planner.apply_pods(&of_a, Event::Delete(gone));
    delta(&mut world.planner);
    let both = allow("two", vec![pods(&[("app", "client")])], Vec::new());
    world
        .planner
        .apply_network_policies(Event::Apply(both.clone()));
    world.planner.plan();
    assert!(!reaches(&world, "10.0.1.2", 80) && reaches(&world, "10.0.1.3", 80));
    let planner = &mut world.planner;
    planner.apply_network_policies(Event::Delete(both.key()));
    planner.plan();
    for event in [Event::Init, Event::InitDone] {
        world
            .planner
            .apply_pods(&PodScope::Namespace("b".into()), event);
    }
    world.planner.plan();
    assert!(!reaches(&world, "10.0.1.3", 80));
    assert!(world.planner.model.kept.is_empty());
}

#[test]
fn what_a_waiting_policy_does_not_select_goes_on() {
    let mut world = waiting_world();
    let db = pod("db", "me", "10.0.0.3", &[("app", "db")]);
    let web = pod("web2", "me", "10.0.0.4", &[("app", "web")]);
    for pod in [&db, &web] {
        world
            .planner
            .apply_pods(&PodScope::Own, Event::Apply(pod.clone()));
    }
    let new = [
        ("10.0.0.2", "web"),
        ("10.0.0.3", "db"),
        ("10.0.0.4", "web2"),
    ];
    world.planner.set_local(records(&new));
    let mut deny = allow("deny", vec![block("192.0.2.0/24", &[])], Vec::new());
    deny.pod_selector = selector(&[("app", "db")]);
    world.planner.apply_network_policies(Event::Apply(deny));
    let added = delta(&mut world.planner).verdicts.enforced.added;
    // The new pod that the waiting policy selects is not enforced.
    assert_eq!(added.into_keys().collect::<Vec<_>>(), [address("10.0.0.3")]);
    let reaches_db = |from: &str| {
        let flow = Flow {
            from: address(from),
            to: address("10.0.0.3"),
            protocol: TCP,
            port: 80,
        };
        passes(world.planner.desired(), Direction::In, flow)
    };
    assert!(reaches_db("192.0.2.9") && !reaches_db("203.0.113.1"));
    let waits = "NetworkPolicy a/one waits for the list of the pods of Namespace a";
    let not_known = |address: &str| world.planner.not_known(address.parse().unwrap());
    assert_eq!(not_known("10.0.0.4").as_deref(), Some(waits));
    assert_eq!(not_known("10.0.0.3"), None);
    list_clients(&mut world);
    let added = delta(&mut world.planner).verdicts.enforced.added;
    assert_eq!(added.into_keys().collect::<Vec<_>>(), [address("10.0.0.4")]);
}

#[test]
fn a_source_that_is_lost_changes_nothing() {
    let mut world = world(vec![allow("one", vec![pods(&[])], Vec::new())]);
    world.planner.apply_namespaces(Event::Lost("gone".into()));
    world
        .planner
        .apply_network_policies(Event::Lost("gone".into()));
    world
        .planner
        .apply_pods(&PodScope::All, Event::Lost("gone".into()));
    assert_eq!(world.planner.plan(), Step::Unchanged);
}

/// A planner that was told of this NetworkPolicy, and that the other kind is forbidden.
fn without_cluster_policies(kept: PolicyKinds) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("me");
    planner.keep(kept);
    let loss = Loss {
        reason: "403".to_owned(),
        forbidden: true,
    };
    planner.apply_cluster_network_policies(Event::Lost(loss));
    let policy = allow("one", Vec::new(), Vec::new());
    let policies = [Event::Init, Event::InitApply(policy), Event::InitDone];
    for event in policies {
        planner.apply_network_policies(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_namespaces(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_pods(&PodScope::Own, event);
    }
    planner.set_nodes([]);
    planner.set_local(LocalPods::default());
    planner
}

#[test]
fn a_kind_that_cannot_be_read_does_not_hold_the_other_back() {
    let mut planner = without_cluster_policies(PolicyKinds::default());
    assert_eq!(planner.plan(), Step::Full);
    assert!(planner.desired().verdicts.active);
    assert!(planner.knows_policies());
    // Once it can be read it counts.
    for event in [Event::Init, Event::InitDone, Event::Restored] {
        planner.apply_cluster_network_policies(event);
    }
    assert_eq!(planner.plan(), Step::Unchanged);
    let neither = |event| {
        let mut planner = PolicyPlanner::new("me");
        planner.apply_cluster_network_policies(Event::Lost("503".into()));
        planner.apply_network_policies(event);
        planner.plan()
    };
    assert!(matches!(neither(Event::Lost("503".into())), Step::Hold(_)));
}

/// What the kernel has of it from before would be taken away.
#[test]
fn a_kind_that_is_in_force_from_before_is_waited_for() {
    let cluster = PolicyKinds {
        cluster: true,
        ..PolicyKinds::default()
    };
    let mut planner = without_cluster_policies(cluster);
    let held = ["the ClusterNetworkPolicies are not known yet".to_owned()];
    assert_eq!(planner.plan(), Step::Hold(held.to_vec()));
    let both = PolicyKinds {
        network: true,
        cluster: true,
    };
    assert_eq!(planner.policy_kinds(), both);
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    assert_eq!(planner.plan(), Step::Full);
    let network = PolicyKinds {
        network: true,
        ..PolicyKinds::default()
    };
    assert_eq!(planner.policy_kinds(), network);
}

#[test]
fn a_policy_whose_subject_is_not_known_is_said_until_it_is_mended_or_goes() {
    let mut world = world(vec![allow("one", vec![pods(&[])], Vec::new())]);
    let policy = |subject| ClusterNetworkPolicy {
        name: "admin".to_owned(),
        tier: "Admin".to_owned(),
        subject,
        ..ClusterNetworkPolicy::default()
    };
    let unknown = || policy(Subject::Unknown("galaxies".to_owned()));
    let known = policy(Subject::Namespaces(selector(&[])));
    let said = |world: &mut World| {
        world.planner.plan();
        let problems = world.planner.problems().iter();
        problems.map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = "this policy is in force for no pod: its subject is not known: galaxies \
                    (ClusterNetworkPolicy admin): replace its subject by namespaces or pods";
    for end in [Event::Apply(known), Event::Delete("admin".into())] {
        let planner = &mut world.planner;
        planner.apply_cluster_network_policies(Event::Apply(unknown()));
        assert_eq!(said(&mut world), [expected]);
        world.planner.apply_cluster_network_policies(end);
        assert_eq!(said(&mut world), [""; 0]);
    }
}

#[test]
fn a_peer_pod_is_one_element_and_adding_one_takes_nothing_away() {
    let mut world = world(vec![allow(
        "one",
        vec![pods(&[("app", "client")])],
        Vec::new(),
    )]);
    let second = pod("second", "other", "10.0.1.3", &[("app", "client")]);
    world
        .planner
        .apply_pods(&PodScope::All, Event::Apply(second.clone()));
    let comes = delta(&mut world.planner);
    assert_eq!(comes.verdicts.identities.len(), 1);
    assert!(comes.verdicts.pairs.ingress.is_empty() && !comes.verdicts.takes_away);
    world
        .planner
        .apply_pods(&PodScope::All, Event::Delete(second.key()));
    let goes = delta(&mut world.planner);
    assert_eq!(goes.verdicts.identities.len(), 1);
    assert!(goes.verdicts.pairs.ingress.is_empty() && goes.verdicts.takes_away);
}

#[test]
fn another_allowing_policy_takes_nothing_away_and_a_narrower_one_does() {
    let mut world = world(vec![allow(
        "one",
        vec![pods(&[("app", "client")])],
        vec![tcp(PortMatch::All)],
    )]);
    let more = allow(
        "two",
        vec![block("0.0.0.0/0", &[])],
        vec![tcp(PortMatch::Range(1, 9))],
    );
    world.planner.apply_network_policies(Event::Apply(more));
    assert!(!delta(&mut world.planner).verdicts.takes_away);
    let less = allow(
        "one",
        vec![pods(&[("app", "client")])],
        vec![tcp(PortMatch::Range(1, 99))],
    );
    world.planner.apply_network_policies(Event::Apply(less));
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert!(reaches(&world, "10.0.1.2", 99) && !reaches(&world, "10.0.1.2", 100));
}
