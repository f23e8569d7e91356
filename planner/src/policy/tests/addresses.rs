//! Which pod has an address: a kubelet, which writes the status of its node's pods, gives and
//! takes no rights of pods of other nodes.

use tweed_component::explain::{End, Why};
use tweed_core::attachment::PodName;
use tweed_core::object::pod::Pod;
use tweed_core::object::{Event, Object as _};

use super::fixture::*;
use super::world::World;
use crate::policy::flow::ExplainError;
use crate::policy::model::pods::PodScope;
use crate::policy::who::Who;
use crate::tests::fixture::NodeFixture as _;

/// Only pods with `app=client` reach `web`; besides the Node of `client` there is a third one.
fn clients_only() -> World {
    let clients = vec![pods(&[("app", "client")])];
    let mut world = world(vec![allow("clients", clients, Vec::new())]);
    world.cluster.nodes.push(node("third", "10.0.2.0/24"));
    world.set_nodes();
    world.planner.plan();
    world
}

fn tell(world: &mut World, pod: Pod) {
    world.planner.apply_pods(&PodScope::All, Event::Apply(pod));
    world.planner.plan();
}

fn at(created: i64, pod: Pod) -> Pod {
    Pod {
        created: Some(created),
        ..pod
    }
}

fn name_at(world: &World, at: &str) -> Option<String> {
    match world.planner.who(address(at)) {
        Who::Pod {
            name: Some(PodName { name, .. }),
            ..
        } => Some(name),
        _ => None,
    }
}

/// A Node that lists the address of another node's pod: packets of the Node do not count as the
/// pod's, and packets of the pod do not count as the Node's.
#[test]
fn a_node_does_not_speak_for_a_pod_of_another_node() {
    let peers = vec![block("10.0.1.2/32", &[]), block("192.0.2.3/32", &[])];
    for (listed, node_passes, pod_passes) in [
        ("198.51.100.9", false, true),
        ("192.0.2.3", true, true),
        ("10.0.1.2", false, true),
    ] {
        let mut world = world(vec![allow("blocks", peers.clone(), Vec::new())]);
        let third = node("third", "10.0.2.0/24").internal(listed);
        world.cluster.nodes.push(third);
        world.set_nodes();
        world.planner.plan();
        assert_eq!(reaches(&world, "10.0.2.0", 80), node_passes, "{listed}");
        assert_eq!(reaches(&world, "10.0.1.2", 80), pod_passes, "{listed}");
        let who = world.planner.who(address("10.0.1.2"));
        assert!(matches!(who, Who::Pod { .. }), "{listed}: {who:?}");
    }
}

#[test]
fn a_pod_neither_gives_nor_takes_the_rights_of_an_address_of_another_node() {
    let mut world = clients_only();
    tell(&mut world, pod("db", "third", "10.0.2.2", &[("app", "db")]));
    assert!(!reaches(&world, "10.0.2.2", 80));
    let gives = pod("gives", "other", "10.0.2.2", &[("app", "client")]);
    tell(&mut world, at(9, gives));
    assert!(!reaches(&world, "10.0.2.2", 80));
    assert_eq!(name_at(&world, "10.0.2.2"), Some("db".into()));

    assert!(reaches(&world, "10.0.1.2", 80));
    let takes = pod("takes", "third", "10.0.1.2", &[("app", "db")]);
    tell(&mut world, at(9, takes));
    assert!(reaches(&world, "10.0.1.2", 80));
    assert_eq!(name_at(&world, "10.0.1.2"), Some("client".into()));

    // Nor do those of an address of nobody, a Node or the world.
    for (one, node) in [
        ("10.0.2.9", "other"),
        ("192.0.2.9", "other"),
        ("198.51.100.1", "other"),
        ("10.0.2.9", "nowhere"),
        ("10.0.2.9", ""),
    ] {
        tell(&mut world, pod("odd", node, one, &[("app", "client")]));
        assert!(!reaches(&world, one, 80), "{one} of {node}");
        assert_eq!(name_at(&world, one), None, "{one} of {node}");
    }
}

/// Only the addresses of its pods are looked at.
#[test]
fn the_addresses_of_a_node_s_pods_come_and_go_with_its_pod_cidrs() {
    let mut world = clients_only();
    let early = pod("early", "fourth", "10.0.3.2", &[("app", "client")]);
    tell(&mut world, early);
    assert!(!reaches(&world, "10.0.3.2", 80), "its Node is not known");
    let mut with = |cidr: Option<&str>| {
        world.cluster.nodes.retain(|node| node.name != "fourth");
        let new = cidr.map(|cidr| node("fourth", cidr));
        world.cluster.nodes.extend(new);
        world.set_nodes();
        let changed = delta(&mut world.planner).verdicts.identities;
        let touched = changed.added.keys().chain(changed.removed.keys());
        assert!(!touched.clone().any(|one| *one == address("10.0.1.2")));
        assert!(reaches(&world, "10.0.1.2", 80));
        reaches(&world, "10.0.3.2", 80)
    };
    assert!(with(Some("10.0.3.0/24")));
    assert!(!with(Some("10.0.4.0/24")));
    assert!(with(Some("10.0.3.0/30")));
    assert!(!with(None));
}

#[test]
fn the_younger_of_two_pods_has_their_address_whatever_is_told_of_the_older_one() {
    let client = |name, created| {
        at(
            created,
            pod(name, "other", "10.0.1.7", &[("app", "client")]),
        )
    };
    let db = |name, created| at(created, pod(name, "other", "10.0.1.7", &[("app", "db")]));
    // Where both are of one second, the names decide.
    for (older, younger) in [
        (client("older", 5), db("younger", 6)),
        (client("a", 5), db("b", 5)),
        (db("older", 5), client("younger", 6)),
        (db("a", 5), client("b", 5)),
    ] {
        let expected = younger.labels["app"] == "client";
        let mut world = clients_only();
        tell(&mut world, younger.clone());
        tell(&mut world, older.clone());
        assert_eq!(reaches(&world, "10.0.1.7", 80), expected);
        let ended = Pod {
            finished: true,
            ..older.clone()
        };
        for told in [ended, older.clone()] {
            tell(&mut world, told);
            assert_eq!(reaches(&world, "10.0.1.7", 80), expected);
        }
        for one in [&younger, &older] {
            let gone = Event::Delete(one.key());
            world.planner.apply_pods(&PodScope::All, gone);
            tell(&mut world, one.clone());
        }
        assert_eq!(reaches(&world, "10.0.1.7", 80), expected);
        assert_eq!(name_at(&world, "10.0.1.7"), Some(younger.name));
    }
}

#[test]
fn a_question_about_a_pod_with_the_address_of_another_one_says_so() {
    let mut world = clients_only();
    let takes = pod("takes", "third", "10.0.1.2", &[("app", "db")]);
    tell(&mut world, takes);
    let named = |name: &str| End::Pod {
        namespace: "a".into(),
        name: name.into(),
    };
    let asked = |name| {
        world.planner.explain(&Why {
            from: named(name),
            to: named("web"),
            protocol: TCP,
            port: Some(80),
        })
    };
    assert!(asked("client").is_ok());
    let error = asked("takes").unwrap_err();
    assert!(matches!(error, ExplainError::NotItsAddress { .. }));
    let text = error.to_string();
    assert!(
        text.contains("10.0.1.2") && text.contains("third"),
        "{text}"
    );
}
