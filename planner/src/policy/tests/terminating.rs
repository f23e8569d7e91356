//! Namespaces that are being deleted: what is in them goes in whatever order, and policies may go
//! before the pods.

use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::selector::LabelSelector;
use tweed_core::object::{Event, Object};

use super::fixture::*;
use super::walk::{Flow, passes};
use super::world::{World, list};
use crate::policy::model::index::PolicyKinds;
use crate::policy::model::pods::PodScope;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::Direction;

/// The addresses of the pod `web`, and of somebody outside.
const ENDS: [(&str, &str); 2] = [("10.0.0.2", "203.0.113.1"), ("fd00::2", "2001:db8::1")];

fn namespace(terminating: bool) -> Namespace {
    Namespace {
        name: "a".into(),
        terminating,
        ..Namespace::default()
    }
}

/// Nobody may connect to the pods of namespace `a`.
fn closed() -> NetworkPolicy {
    NetworkPolicy {
        pod_selector: LabelSelector::default(),
        ingress: Vec::new(),
        ..allow("closed", Vec::new(), Vec::new())
    }
}

/// Whether connections to `web` come about, and those from it, over both families.
fn open(planner: &PolicyPlanner) -> [bool; 2] {
    [Direction::In, Direction::Out].map(|direction| {
        let both = ENDS.map(|(own, other)| {
            let (from, to) = match direction {
                Direction::In => (other, own),
                Direction::Out => (own, other),
            };
            let flow = Flow {
                from: address(from),
                to: address(to),
                protocol: TCP,
                port: 80,
            };
            passes(planner.desired(), direction, flow)
        });
        assert_eq!(both[0], both[1]);
        both[0]
    })
}

/// The pod `web` with addresses of both families.
fn dual(policies: Vec<NetworkPolicy>) -> World {
    let mut world = world(policies);
    world
        .planner
        .set_local(records(&ENDS.map(|(own, _)| (own, "web"))));
    world.planner.plan();
    world
}

#[test]
fn policies_that_go_before_the_pods_of_their_namespace_stay_in_force() {
    // One that stays, elsewhere.
    let elsewhere = NetworkPolicy {
        namespace: "b".into(),
        ..closed()
    };
    for relists in [false, true] {
        let mut world = dual(vec![closed(), elsewhere.clone()]);
        let planner = &mut world.planner;
        assert_eq!(open(planner), [false, true]);
        planner.apply_namespaces(Event::Apply(namespace(true)));
        let events = if relists {
            list(std::slice::from_ref(&elsewhere))
        } else {
            vec![Event::Delete(closed().key())]
        };
        for event in events {
            planner.apply_network_policies(event);
        }
        planner.plan();
        assert_eq!(open(planner), [false, true]);
        assert_eq!(planner.policies(), (2, 0));
        // It is said so.
        assert!(
            planner
                .in_force()
                .iter()
                .any(|one| one.to_string().ends_with("a/closed"))
        );

        planner.apply_namespaces(Event::Delete(namespace(true).key()));
        planner.plan();
        assert_eq!((open(planner), planner.policies()), ([false; 2], (1, 0)));
        planner.apply_namespaces(Event::Apply(namespace(false)));
        planner.plan();
        assert_eq!(open(planner), [true; 2]);
    }
}

#[test]
fn policies_that_are_deleted_by_themselves_go_at_once() {
    let mut world = dual(vec![closed()]);
    let planner = &mut world.planner;
    planner.apply_network_policies(Event::Delete(closed().key()));
    planner.plan();
    assert_eq!(open(planner), [true; 2]);
    // And those that are made and changed meanwhile count as they are.
    planner.apply_network_policies(Event::Apply(closed()));
    planner.apply_namespaces(Event::Apply(namespace(true)));
    planner.apply_network_policies(Event::Delete(closed().key()));
    let everybody = allow("closed", Vec::new(), Vec::new());
    planner.apply_network_policies(Event::Apply(everybody));
    planner.plan();
    assert_eq!((open(planner), planner.policies()), ([true; 2], (1, 0)));
}

/// A planner with the pod `web`, which was not told yet of Namespaces and NetworkPolicies.
fn restarted(kept: PolicyKinds) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("me");
    planner.keep(kept);
    let web = pod("web", "me", ENDS[0].0, &[("app", "web")]);
    for scope in [PodScope::Own, PodScope::All] {
        for event in list(std::slice::from_ref(&web)) {
            planner.apply_pods(&scope, event);
        }
    }
    for event in list(&[]) {
        planner.apply_cluster_network_policies(event);
    }
    planner.set_nodes([]);
    planner.set_local(records(&ENDS.map(|(own, _)| (own, "web"))));
    planner
}

const NETWORK: PolicyKinds = PolicyKinds {
    network: true,
    cluster: false,
};

/// Nothing says which policies have gone while nobody looked.
#[test]
fn pods_of_a_namespace_that_was_being_deleted_before_a_restart_are_isolated() {
    let left = allow("left", Vec::new(), Vec::new());
    for (policies, expected) in [(vec![], [false; 2]), (vec![left], [true, false])] {
        for policies_first in [true, false] {
            let mut planner = restarted(NETWORK);
            for of_policies in [policies_first, !policies_first] {
                // The table from before stays, and has to be asked about.
                assert!(matches!(planner.plan(), Step::Hold(_)));
                assert!(planner.wants().namespaces);
                assert!(planner.policy_kinds().network);
                if of_policies {
                    for event in list(&policies) {
                        planner.apply_network_policies(event);
                    }
                } else {
                    for event in list(&[namespace(true)]) {
                        planner.apply_namespaces(event);
                    }
                }
            }
            assert_eq!(planner.plan(), Step::Full);
            assert_eq!(open(&planner), expected);
            // It is gone, and another one has its name.
            planner.apply_namespaces(Event::Delete(namespace(true).key()));
            planner.apply_namespaces(Event::Apply(namespace(false)));
            planner.plan();
            assert_eq!(open(&planner), [true; 2]);
        }
    }
}

#[test]
fn after_a_restart_nothing_is_isolated_without_a_reason() {
    // No namespace is being deleted, or the kernel had no NetworkPolicies.
    for (kept, terminating) in [(NETWORK, false), (PolicyKinds::default(), true)] {
        let mut planner = restarted(kept);
        for event in list(&[namespace(terminating)]) {
            planner.apply_namespaces(event);
        }
        for event in list(&[]) {
            planner.apply_network_policies(event);
        }
        assert_eq!(planner.plan(), Step::Full);
        assert!(!planner.desired().verdicts.active);
        assert!(!planner.wants().namespaces);
    }
}

/// Its policies have come and gone while the watch of Namespaces was broken off.
#[test]
fn pods_of_a_namespace_that_is_first_seen_while_it_is_being_deleted_are_isolated() {
    let elsewhere = NetworkPolicy {
        namespace: "b".into(),
        ..closed()
    };
    for relists in [false, true] {
        let mut world = dual(vec![elsewhere.clone()]);
        let planner = &mut world.planner;
        planner.apply_namespaces(Event::Delete(namespace(false).key()));
        planner.plan();
        let events = if relists {
            list(&[namespace(true)])
        } else {
            vec![Event::Apply(namespace(true))]
        };
        for event in events {
            planner.apply_namespaces(event);
        }
        planner.plan();
        assert_eq!(open(planner), [false; 2]);
    }
}
