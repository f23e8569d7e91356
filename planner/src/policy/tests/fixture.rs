//! A small cluster with one pod here, one elsewhere, and NetworkPolicies.

use std::net::IpAddr;

use tweed_core::attachment::PodName;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::LabelSelector;

use super::cluster::Cluster;
use super::walk::{Flow, passes};
use super::world::{World, labels};
use crate::policy::desired::Delta;
use crate::policy::model::local::LocalPods;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::Direction;

pub const TCP: u8 = 6;

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn selector(pairs: &[(&str, &str)]) -> LabelSelector {
    LabelSelector {
        match_labels: labels(pairs).into_iter().collect(),
        ..LabelSelector::default()
    }
}

pub fn pod(name: &str, node: &str, address: &str, pairs: &[(&str, &str)]) -> Pod {
    Pod {
        namespace: "a".into(),
        name: name.into(),
        created: Some(1),
        labels: labels(pairs),
        node: node.into(),
        addresses: vec![address.into()],
        ..Pod::default()
    }
}

pub fn node(name: &str, cidr: &str) -> Node {
    Node {
        name: name.into(),
        pod_cidrs: vec![cidr.into()],
        ..Node::default()
    }
}

pub fn tcp(port: PortMatch) -> Port {
    Port {
        protocol: "TCP".into(),
        port,
    }
}

/// Allows ingress to the pods `app=web` of namespace `a`.
pub fn allow(name: &str, peers: Vec<Peer>, ports: Vec<Port>) -> NetworkPolicy {
    NetworkPolicy {
        namespace: "a".into(),
        name: name.into(),
        pod_selector: selector(&[("app", "web")]),
        policy_types: vec!["Ingress".into()],
        ingress: vec![Rule { peers, ports }],
        ..NetworkPolicy::default()
    }
}

pub fn block(cidr: &str, except: &[&str]) -> Peer {
    Peer::Block {
        cidr: cidr.into(),
        except: except.iter().map(|one| (*one).to_owned()).collect(),
    }
}

pub fn pods(pairs: &[(&str, &str)]) -> Peer {
    Peer::Pods {
        namespace: None,
        pod: Some(selector(pairs)),
    }
}

/// The pod `web` on this node, `client` on another one, and these policies.
pub fn world(policies: Vec<NetworkPolicy>) -> World {
    let namespaces = ["a", "b", "c"].map(|name| Namespace {
        name: name.into(),
        ..Namespace::default()
    });
    let mut world = World::new(Cluster {
        namespaces: namespaces.into(),
        pods: vec![
            pod("web", "me", "10.0.0.2", &[("app", "web")]),
            pod("client", "other", "10.0.1.2", &[("app", "client")]),
        ],
        nodes: vec![Node {
            name: "other".into(),
            labels: labels(&[("zone", "one")]).into(),
            pod_cidrs: vec!["10.0.1.0/24".into()],
            addresses: vec![NodeAddress {
                kind: "InternalIP".into(),
                address: "192.0.2.2".into(),
            }],
            ..Node::default()
        }],
        network_policies: policies,
        ..Cluster::default()
    });
    assert_eq!(world.planner.plan(), Step::Full);
    world
}

pub fn delta(planner: &mut PolicyPlanner) -> Delta {
    match planner.plan() {
        Step::Delta(delta) => *delta,
        other => panic!("{other:?}"),
    }
}

/// Whether a TCP packet reaches the pod `web`.
pub fn reaches(world: &World, from: &str, port: u16) -> bool {
    let flow = Flow {
        from: address(from),
        to: address("10.0.0.2"),
        protocol: TCP,
        port,
    };
    passes(world.planner.desired(), Direction::In, flow)
}

/// The store's records: these pods of namespace `a`.
pub fn records(pods: &[(&str, &str)]) -> LocalPods {
    let record = |(ip, name): &(&str, &str)| {
        let name = PodName {
            namespace: "a".into(),
            name: (*name).into(),
        };
        (address(ip), Some(name.into()))
    };
    LocalPods {
        pods: pods.iter().map(record).collect(),
        ..LocalPods::default()
    }
}
