//! Addresses and names that are used again, and addresses that are written otherwise.

use tweed_core::object::pod::Pod;
use tweed_core::object::{Event, Object};

use super::fixture::*;
use super::world::World;
use crate::policy::model::pods::PodScope;

#[test]
fn an_address_that_gets_another_pod_while_a_policy_waits_is_isolated() {
    let mut world = world(vec![allow("all", Vec::new(), Vec::new())]);
    world.planner.drop_scope(&PodScope::All);
    let mut replica = world.cluster.pods[0].clone();
    replica.name = "replica".into();
    let created = Event::Apply(replica);
    world.planner.apply_pods(&PodScope::Own, created);
    let both = [("10.0.0.2", "web"), ("10.0.0.3", "replica")];
    world.planner.set_local(records(&both));
    world.planner.plan();
    assert!(reaches(&world, "203.0.113.1", 80));

    let policy = allow("pods", vec![pods(&[("app", "client")])], Vec::new());
    world.planner.apply_network_policies(Event::Apply(policy));
    world.planner.plan();
    assert_eq!(world.planner.held().len(), 1);
    let again = [("10.0.0.2", "database"), ("10.0.0.3", "replica")];
    world.planner.set_local(records(&again));
    let withdrawn = delta(&mut world.planner);
    assert!(withdrawn.verdicts.takes_away);
    let removed: Vec<_> = withdrawn.verdicts.enforced.removed.into_keys().collect();
    assert_eq!(removed, [address("10.0.0.2")]);
    let enforced = |world: &World| world.planner.desired().verdicts.enforced.clone();
    assert_eq!(enforced(&world), [address("10.0.0.3")].into());

    let database = pod("database", "me", "10.0.0.2", &[("app", "web")]);
    world
        .planner
        .apply_pods(&PodScope::Own, Event::Apply(database));
    world.planner.plan();
    assert_eq!(enforced(&world), [address("10.0.0.3")].into());
    let scope = PodScope::Namespace("a".into());
    for event in [Event::Init, Event::InitDone] {
        world.planner.apply_pods(&scope, event);
    }
    let added = delta(&mut world.planner).verdicts.enforced.added;
    assert!(added.contains_key(&address("10.0.0.2")));
}

/// The next replica has the same labels, and its Pod is known before its record, as always.
#[test]
fn a_replica_that_gets_the_address_of_the_one_before_while_a_policy_waits_is_isolated() {
    let mut world = world(vec![allow("all", Vec::new(), Vec::new())]);
    world.planner.drop_scope(&PodScope::All);
    let policy = allow("pods", vec![pods(&[("app", "client")])], Vec::new());
    world.planner.apply_network_policies(Event::Apply(policy));
    world.planner.set_local(records(&[("10.0.0.2", "web")]));
    world.planner.plan();
    assert_eq!(world.planner.held().len(), 1);
    assert!(reaches(&world, "203.0.113.1", 80));

    let replica = pod("replica", "me", "10.0.0.2", &[("app", "web")]);
    let own = PodScope::Own;
    world.planner.apply_pods(&own, Event::Apply(replica));
    world.planner.plan();
    world.planner.set_local(records(&[("10.0.0.2", "replica")]));
    assert!(delta(&mut world.planner).verdicts.takes_away);
    assert!(!reaches(&world, "203.0.113.1", 80));
    assert!(world.planner.not_known(address("10.0.0.2")).is_some());

    let scope = PodScope::Namespace("a".into());
    for event in [Event::Init, Event::InitDone] {
        world.planner.apply_pods(&scope, event);
    }
    world.planner.plan();
    assert!(reaches(&world, "203.0.113.1", 80));
}

/// A pod of a StatefulSet has come back on another node, while the watch of the own pods
/// was broken off: that one goes on where it was.
#[test]
fn a_late_watch_does_not_bring_back_an_older_pod_of_the_same_name() {
    let clients = vec![pods(&[("app", "client")])];
    let mut world = world(vec![allow("one", clients, Vec::new())]);
    world.cluster.nodes.push(node("me", "10.0.0.0/24"));
    world.set_nodes();
    let of_a = PodScope::Namespace("a".into());
    for event in [Event::Init, Event::InitDone] {
        world.planner.apply_pods(&of_a, event);
    }
    world.planner.drop_scope(&PodScope::All);
    let db = |uid: &str, created, node, address| Pod {
        uid: uid.into(),
        created: Some(created),
        ..pod("db-0", node, address, &[("app", "client")])
    };
    let older = db("uid1", 1, "me", "10.0.0.5");
    let newer = db("uid2", 2, "other", "10.0.1.5");
    let mut reached = |scope: &PodScope, event| {
        world.planner.apply_pods(scope, event);
        world.planner.plan();
        ["10.0.0.5", "10.0.1.5"].map(|from| reaches(&world, from, 80))
    };
    let modified = || Event::Apply(older.clone());
    let deleted = || Event::Delete(older.key());
    assert_eq!(reached(&PodScope::Own, modified()), [true, false]);
    let came_back = Event::Apply(newer.clone());
    assert_eq!(reached(&of_a, came_back), [false, true]);
    assert_eq!(reached(&PodScope::Own, modified()), [false, true]);
    assert_eq!(reached(&PodScope::Own, deleted()), [false, true]);
    // Nor does the older one keep the newer one when that goes first.
    assert_eq!(reached(&PodScope::Own, modified()), [false, true]);
    assert_eq!(reached(&of_a, deleted()), [false, false]);
    // Another watch that is late gives up its own claim only.
    assert_eq!(reached(&of_a, modified()), [true, false]);
    let came_back = Event::Apply(newer.clone());
    assert_eq!(reached(&PodScope::Own, came_back), [false, true]);
    assert_eq!(reached(&of_a, deleted()), [false, true]);
}

/// A pod on the host's network has no record: the record is of another pod.
#[test]
fn a_record_with_the_name_of_a_pod_on_the_hosts_network_is_isolated() {
    let mut world = world(vec![allow("none", Vec::new(), Vec::new())]);
    let mut web = world.cluster.pods[0].clone();
    web.host_network = true;
    for scope in [PodScope::Own, PodScope::All] {
        let event = Event::Apply(web.clone());
        world.planner.apply_pods(&scope, event);
    }
    let removed = delta(&mut world.planner).verdicts.enforced.removed;
    assert!(removed.contains_key(&address("10.0.0.2")));
}

#[test]
fn an_exception_that_is_written_as_ipv6_is_one_of_ipv4() {
    let peer = block("10.0.0.0/8", &["::ffff:10.1.0.0/112"]);
    let world = world(vec![allow("one", vec![peer], Vec::new())]);
    assert!(reaches(&world, "10.2.0.1", 80));
    assert!(!reaches(&world, "10.1.0.1", 80));
}
