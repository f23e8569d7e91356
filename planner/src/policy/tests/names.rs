//! Named ports of egress: they are those of pods that may not be listed yet.

use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::pod::{NamedPort, Pod};
use tweed_core::object::{Event, Object};

use super::fixture::*;
use super::walk::{Flow, passes};
use super::world::World;
use crate::policy::model::pods::PodScope;
use crate::policy::verdicts::Direction;

const UDP: u8 = 17;

/// A pod of namespace `b` on another node, of which port 5432 is `postgres`.
fn database() -> Pod {
    let port = NamedPort {
        name: "postgres".into(),
        protocol: "TCP".into(),
        port: 5432,
    };
    Pod {
        namespace: "b".into(),
        ports: vec![port],
        ..pod("database", "other", "10.0.1.3", &[])
    }
}

fn postgres() -> Port {
    tcp(PortMatch::Named("postgres".into()))
}

fn of_b() -> Peer {
    Peer::Pods {
        namespace: Some(selector(&[(Namespace::NAME_LABEL, "b")])),
        pod: None,
    }
}

/// What the pod `web` may send.
fn egress(name: &str, rules: Vec<Rule>) -> NetworkPolicy {
    NetworkPolicy {
        policy_types: vec!["Egress".into()],
        ingress: Vec::new(),
        egress: rules,
        ..allow(name, Vec::new(), Vec::new())
    }
}

/// The pod `web` with these policies, where no pods of other nodes are listed.
fn unlisted(policies: Vec<NetworkPolicy>) -> World {
    let mut world = world(policies);
    world.planner.drop_scope(&PodScope::All);
    world.planner.plan();
    world
}

/// Lists the pods of a namespace: there is the database and no other one.
fn list(world: &mut World, namespace: &str) {
    let scope = PodScope::Namespace(namespace.into());
    let mut events = vec![Event::Init, Event::InitDone];
    if database().namespace == namespace {
        events.insert(1, Event::InitApply(database()));
    }
    for event in events {
        world.planner.apply_pods(&scope, event);
    }
    world.planner.plan();
}

fn list_database(world: &mut World) {
    list(world, "b");
    assert_eq!(world.planner.held(), [""; 0]);
}

/// Whether the pod `web` may send to the database.
fn sends(world: &World, protocol: u8, port: u16) -> bool {
    let flow = Flow {
        from: address("10.0.0.2"),
        to: address("10.0.1.3"),
        protocol,
        port,
    };
    passes(world.planner.desired(), Direction::Out, flow)
}

#[test]
fn what_a_named_port_may_allow_is_not_cut_before_its_pods_are_listed() {
    let mut world = unlisted(vec![allow("other", Vec::new(), Vec::new())]);
    let rule = Rule {
        peers: vec![of_b()],
        ports: vec![postgres()],
    };
    let policy = Event::Apply(egress("one", vec![rule]));
    world.planner.apply_network_policies(policy);
    delta(&mut world.planner);
    assert_eq!(world.planner.held().len(), 1);
    assert!(sends(&world, TCP, 5432), "it may be the named port");
    assert!(!sends(&world, UDP, 5432), "the policy opens no port of UDP");
    list_database(&mut world);
    assert!(sends(&world, TCP, 5432) && !sends(&world, TCP, 80));
}

#[test]
fn what_a_named_port_may_deny_is_not_let_in_before_its_pods_are_listed() {
    let nothing = egress("none", Vec::new());
    let mut world = unlisted(vec![nothing.clone()]);
    let deny = ClusterNetworkPolicy {
        name: "deny".to_owned(),
        tier: "Admin".to_owned(),
        subject: Subject::Namespaces(selector(&[])),
        egress: vec![cluster::Rule {
            name: String::new(),
            action: "Deny".to_owned(),
            peers: vec![cluster::Peer::Namespaces(selector(&[(
                Namespace::NAME_LABEL,
                "b",
            )]))],
            protocols: vec![cluster::Protocol::NamedPort("postgres".into())],
        }],
        ..ClusterNetworkPolicy::default()
    };
    let planner = &mut world.planner;
    planner.apply_cluster_network_policies(Event::Apply(deny));
    planner.apply_network_policies(Event::Delete(nothing.key()));
    planner.plan();
    assert_eq!(world.planner.held().len(), 1);
    assert!(!sends(&world, TCP, 5432), "both refuse it");
    list_database(&mut world);
    assert!(!sends(&world, TCP, 5432) && sends(&world, TCP, 80));
}

/// Names are those of pods, also in rules that name no pods.
#[test]
fn a_named_port_without_peers_or_of_a_block_is_that_of_each_pod() {
    let others = ["198.51.100.0/24", "10.0.1.0/24"].map(|cidr| block(cidr, &[]));
    for peers in [Vec::new(), others.to_vec()] {
        let ports = vec![postgres(), tcp(PortMatch::Range(80, 80))];
        let rule = Rule { peers, ports };
        let mut world = unlisted(vec![egress("one", vec![rule])]);
        let of_all = ["a", "b", "c"].map(str::to_owned);
        let wanted = of_all.clone().map(PodScope::Namespace);
        assert_eq!(world.planner.model.peers, wanted.into());
        assert!(sends(&world, TCP, 80), "anybody's");
        for namespace in of_all {
            list(&mut world, &namespace);
        }
        assert_eq!(world.planner.held(), [""; 0]);
        assert!(sends(&world, TCP, 80) && sends(&world, TCP, 5432));
        assert!(!sends(&world, TCP, 81));
    }
}
