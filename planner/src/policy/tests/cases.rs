//! Single cases, told to a planner as a cluster tells them: what it waits for, and what changes.

use super::fixture::*;
use super::world::World;
use tweed_core::object::cluster_network_policy::{ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::PortMatch;
use tweed_core::object::{Event, Loss, Object};

use crate::policy::PolicyKinds;
use crate::policy::local::LocalPods;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::pods::PodScope;
use crate::policy::wants::{Peers, Wants};

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
    assert!(!planner.desired().active);
    assert_eq!(planner.wants(), Wants::default());
    assert_eq!(planner.plan(), Step::Unchanged);
}

#[test]
fn the_last_policy_that_goes_takes_everything_with_it() {
    let policy = allow("one", vec![pods(&[])], Vec::new());
    let mut world = world(vec![policy.clone()]);
    assert!(world.planner.desired().active);
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
    assert!(wants.namespaces && wants.own_pods);
    assert_eq!(wants.peers, Peers::None);

    let one = allow("pods", vec![pods(&[])], Vec::new());
    world.planner.apply_network_policies(Event::Apply(one));
    world.planner.plan();
    assert_eq!(
        world.planner.wants().peers,
        Peers::Namespaces(["a".to_owned()].into())
    );
}

#[test]
fn a_plan_waits_for_the_pods_that_it_needs_and_keeps_the_last_one() {
    let mut world = world(vec![allow(
        "cidr",
        vec![block("10.0.0.0/8", &[])],
        Vec::new(),
    )]);
    world.planner.drop_scope(&PodScope::All);
    world.planner.plan();
    let before = world.planner.desired().clone();
    let policy = allow("pods", vec![pods(&[("app", "client")])], Vec::new());
    world.planner.apply_network_policies(Event::Apply(policy));
    assert!(matches!(world.planner.plan(), Step::Hold(_)));
    assert_eq!(world.planner.desired(), &before);
    let scope = PodScope::Namespace("a".into());
    for event in [
        Event::Init,
        Event::InitApply(world.cluster.pods[1].clone()),
        Event::InitDone,
    ] {
        world.planner.apply_pods(&scope, event);
    }
    assert!(!delta(&mut world.planner).takes_away);
    assert!(reaches(&world, "10.0.1.2", 1));
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
    assert!(planner.desired().active);
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
    assert_eq!(comes.identities.len(), 1);
    assert!(comes.pairs.ingress.is_empty() && !comes.takes_away);
    world
        .planner
        .apply_pods(&PodScope::All, Event::Delete(second.key()));
    let goes = delta(&mut world.planner);
    assert_eq!(goes.identities.len(), 1);
    assert!(goes.pairs.ingress.is_empty() && goes.takes_away);
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
    assert!(!delta(&mut world.planner).takes_away);
    let less = allow(
        "one",
        vec![pods(&[("app", "client")])],
        vec![tcp(PortMatch::Range(1, 99))],
    );
    world.planner.apply_network_policies(Event::Apply(less));
    assert!(delta(&mut world.planner).takes_away);
    assert!(reaches(&world, "10.0.1.2", 99) && !reaches(&world, "10.0.1.2", 100));
}
