//! Random clusters, and the planner of one of their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_core::attachment::PodName;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::pod::{NamedPort, Pod};
use tweed_core::object::selector::Labels;
use tweed_core::object::{Event, Object};

use super::cluster::{Cluster, evaluate};
use super::random::{NAMESPACES, cluster_policy, network_policy};
use super::walk::Flow;
use crate::policy::evaluate::{Explanation, Packet, Policies};
use crate::policy::model::local::{LocalPod, LocalPods, PolicyKey};
use crate::policy::model::pods::PodScope;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::tests::dice::Dice;
use crate::tests::fixture::claimed;

/// Addresses that random packets are between.
pub const OUTSIDE: [&str; 6] = [
    "198.51.100.1",
    "198.51.100.200",
    "255.255.255.255",
    "203.0.113.1",
    "2001:db8::1",
    "2001:4860::1",
];

/// The names of all Nodes.
const NODES: [&str; 3] = ["me", "other", "third"];

/// A cluster and what the planner of node `me` was told of it.
pub struct World {
    pub cluster: Cluster,
    pub planner: PolicyPlanner,
}

pub fn labels(labels: &[(&str, &str)]) -> Labels {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    labels.iter().map(own).collect()
}

pub fn random_labels(dice: &mut Dice) -> Labels {
    let mut labels = Labels::new();
    for key in ["app", "tier"] {
        if !dice.chance(3) {
            labels.insert(key.into(), (*dice.pick(&["x", "y"])).into());
        }
    }
    labels
}

/// Pod `number`: the first four are of node `me`.
pub fn pod(dice: &mut Dice, number: usize) -> Pod {
    let node = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2][number];
    let local = node == 0;
    let (mut subnet, mut host) = (node, number + 2);
    if !local && dice.chance(3) {
        // The address of another pod of its node, or one of another node.
        (subnet, host) = if dice.chance(2) {
            (node, 3 + 3 * node + dice.roll(3))
        } else {
            (dice.roll(4), 2 + dice.roll(10))
        };
    }
    let mut ports = Vec::new();
    for (name, numbers) in [("http", [80, 8080]), ("metrics", [443, 9100])] {
        if dice.chance(2) {
            ports.push(NamedPort {
                name: name.into(),
                protocol: (*dice.pick(&["TCP", "UDP"])).into(),
                port: *dice.pick(&numbers),
            });
        }
    }
    Pod {
        namespace: NAMESPACES[number % 3].into(),
        name: format!("pod{number}"),
        // Some are of one second.
        created: (number > 5).then_some(number as i64 / 3),
        labels: random_labels(dice),
        node: NODES[node].into(),
        ports,
        addresses: vec![
            format!("10.0.{subnet}.{host}"),
            format!("fd00::{subnet}:{host}"),
        ],
        host_network: !local && dice.chance(12),
        finished: !local && dice.chance(12),
        ..Pod::default()
    }
}

pub fn node(dice: &mut Dice, number: usize) -> Node {
    let mut pod_cidrs = vec![
        format!("10.0.{number}.0/28"),
        format!("fd00::{number}:0/112"),
    ];
    if number > 0 && dice.chance(4) {
        // Of one family, none, smaller, or others.
        pod_cidrs = match dice.roll(4) {
            0 => vec![format!("fd00::{number}:0/112")],
            1 => Vec::new(),
            2 => vec![format!("10.0.{number}.0/29")],
            _ => vec!["10.0.3.0/28".into(), "fd00::3:0/112".into()],
        };
    }
    let address = |address: String| NodeAddress {
        kind: "InternalIP".into(),
        address,
    };
    Node {
        name: NODES[number].into(),
        labels: random_labels(dice).into(),
        pod_cidrs,
        addresses: vec![
            address(format!("192.0.2.{}", number + 1)),
            address(format!("2001:db8::{}", number + 1)),
        ],
        ..Node::default()
    }
}

pub fn namespace(dice: &mut Dice, number: usize) -> Namespace {
    Namespace {
        name: NAMESPACES[number].into(),
        labels: random_labels(dice),
        ..Namespace::default()
    }
}

/// Puts an object in place of the one with its name.
fn replace<T: Object>(all: &mut Vec<T>, one: T) {
    all.retain(|other| other.key() != one.key());
    all.push(one);
}

/// The events of a complete list.
pub fn list<T: Clone>(objects: &[T]) -> Vec<Event<T>> {
    let applied = objects.iter().cloned().map(Event::InitApply);
    let begin = [Event::Init].into_iter();
    begin.chain(applied).chain([Event::InitDone]).collect()
}

impl World {
    /// A planner that is told everything at once.
    pub fn new(cluster: Cluster) -> Self {
        let mut planner = PolicyPlanner::new("me");
        for event in list(&cluster.namespaces) {
            planner.apply_namespaces(event);
        }
        let own: Vec<Pod> = cluster
            .pods
            .iter()
            .filter(|pod| pod.node == "me")
            .cloned()
            .collect();
        for event in list(&own) {
            planner.apply_pods(&PodScope::Own, event);
        }
        for event in list(&cluster.pods) {
            planner.apply_pods(&PodScope::All, event);
        }
        for event in list(&cluster.network_policies) {
            planner.apply_network_policies(event);
        }
        for event in list(&cluster.cluster_network_policies) {
            planner.apply_cluster_network_policies(event);
        }
        let mut world = Self { cluster, planner };
        world.set_nodes();
        world.set_local();
        world
    }

    pub fn random(dice: &mut Dice) -> Self {
        let mut cluster = Cluster {
            namespaces: (0..3).map(|number| namespace(dice, number)).collect(),
            pods: (0..10).map(|number| pod(dice, number)).collect(),
            nodes: (0..3).map(|number| node(dice, number)).collect(),
            ..Cluster::default()
        };
        for _ in 0..dice.roll(5) {
            replace(&mut cluster.network_policies, network_policy(dice));
        }
        for _ in 0..dice.roll(4) {
            replace(&mut cluster.cluster_network_policies, cluster_policy(dice));
        }
        Self::new(cluster)
    }

    /// What the evaluator says, if the same policies have no networks for it as have none for
    /// the planner.
    pub fn evaluate(&self, flow: Flow) -> Explanation {
        self.evaluate_without(flow, self.planner.model.refused())
    }

    /// The same if just these policies are refused.
    pub fn evaluate_without(&self, flow: Flow, refused: BTreeSet<PolicyKey>) -> Explanation {
        let policies = Policies {
            refused,
            ..self.cluster.policies()
        };
        let packet = Packet {
            from: self.cluster.party(flow.from),
            to: self.cluster.party(flow.to),
            protocol: flow.protocol,
            port: flow.port,
        };
        evaluate(&policies, &packet)
    }

    /// Plans until there is no more to do.
    pub fn settle(&mut self) {
        loop {
            assert!(!matches!(self.planner.plan(), Step::Hold(_)));
            if !self.planner.has_more() {
                return;
            }
        }
    }

    /// The store's records: those of the local pods that exist.
    pub fn set_local(&mut self) {
        let mut pods = BTreeMap::new();
        for pod in self.cluster.pods.iter().filter(|pod| pod.node == "me") {
            for address in &pod.addresses {
                let name = PodName {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                };
                let pod = LocalPod {
                    uid: (!pod.uid.is_empty()).then(|| pod.uid.clone()),
                    name,
                };
                pods.insert(address.parse().unwrap(), Some(pod));
            }
        }
        pods.insert("10.0.0.14".parse().unwrap(), None);
        let own = ["10.0.0.0".parse().unwrap(), "fd00::".parse().unwrap()];
        self.planner.set_local(LocalPods {
            cidrs: [
                "10.0.1.0/24".parse().unwrap(),
                "fd00:0:0:1::/64".parse().unwrap(),
            ]
            .into(),
            pods,
            own: own.into(),
        });
    }

    /// Gives the planner the Nodes.
    pub fn set_nodes(&mut self) {
        let nodes = self.cluster.nodes.iter();
        self.planner
            .set_nodes(nodes.map(|node| (node, claimed(node))));
    }

    /// Tells of each pod again, as of one that is gone and of one that has come, in random
    /// order, and of the Nodes at any time. Nothing is another one afterwards.
    pub fn tell_again(&mut self, dice: &mut Dice) {
        let mut pods = self.cluster.pods.clone();
        while !pods.is_empty() {
            let pod = pods.remove(dice.roll(pods.len()));
            let own = (pod.node == "me").then_some(PodScope::Own);
            let scopes: Vec<_> = own.into_iter().chain([PodScope::All]).collect();
            for scope in &scopes {
                self.planner.apply_pods(scope, Event::Delete(pod.key()));
            }
            if dice.chance(3) {
                self.planner.set_nodes([]);
            }
            if dice.chance(2) {
                self.planner.plan();
            }
            for scope in &scopes {
                self.planner.apply_pods(scope, Event::Apply(pod.clone()));
            }
            if dice.chance(2) {
                self.set_nodes();
            }
        }
        self.set_nodes();
    }

    /// One random change of the cluster.
    pub fn change(&mut self, dice: &mut Dice) {
        match dice.roll(12) {
            0..2 => {
                let policy = network_policy(dice);
                self.planner
                    .apply_network_policies(Event::Apply(policy.clone()));
                replace(&mut self.cluster.network_policies, policy);
            }
            2 => {
                if let Some(key) = any(dice, &mut self.cluster.network_policies) {
                    self.planner.apply_network_policies(Event::Delete(key));
                }
            }
            3..5 => {
                let policy = cluster_policy(dice);
                self.planner
                    .apply_cluster_network_policies(Event::Apply(policy.clone()));
                replace(&mut self.cluster.cluster_network_policies, policy);
            }
            5 => {
                if let Some(key) = any(dice, &mut self.cluster.cluster_network_policies) {
                    self.planner
                        .apply_cluster_network_policies(Event::Delete(key));
                }
            }
            6 => {
                let number = dice.roll(3);
                let namespace = namespace(dice, number);
                self.planner
                    .apply_namespaces(Event::Apply(namespace.clone()));
                replace(&mut self.cluster.namespaces, namespace);
            }
            7 => {
                let number = dice.roll(3);
                let node = node(dice, number);
                let goes = number > 0 && dice.chance(4);
                replace(&mut self.cluster.nodes, node);
                if goes {
                    self.cluster.nodes.pop();
                }
                self.set_nodes();
            }
            8 => {
                if let Some(key) = any(dice, &mut self.cluster.pods) {
                    let namespace = PodScope::Namespace(key.namespace.clone());
                    for scope in [PodScope::Own, PodScope::All, namespace] {
                        self.planner.apply_pods(&scope, Event::Delete(key.clone()));
                    }
                }
            }
            _ => {
                let number = dice.roll(10);
                let mut pod = pod(dice, number);
                let same = self.cluster.pods.iter().find(|one| one.name == pod.name);
                if let Some(same) = same.filter(|_| dice.chance(3)) {
                    // Another pod with its name, addresses and labels, as of a StatefulSet.
                    pod = same.clone();
                    pod.uid = format!("{}", dice.roll(1000));
                }
                if pod.node == "me" {
                    self.planner
                        .apply_pods(&PodScope::Own, Event::Apply(pod.clone()));
                }
                for scope in [PodScope::All, PodScope::Namespace(pod.namespace.clone())] {
                    self.planner.apply_pods(&scope, Event::Apply(pod.clone()));
                }
                replace(&mut self.cluster.pods, pod);
            }
        }
        self.set_local();
    }

    /// The addresses of local pods.
    pub fn local(&self) -> Vec<IpAddr> {
        let local = self.cluster.pods.iter().filter(|pod| pod.node == "me");
        local
            .flat_map(|pod| pod.addresses.iter().map(|one| one.parse().unwrap()))
            .collect()
    }

    /// Addresses of every sort.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let pods = self.cluster.pods.iter().flat_map(|pod| &pod.addresses);
        let nodes = self.cluster.nodes.iter().flat_map(|node| &node.addresses);
        let texts = pods
            .map(String::as_str)
            .chain(nodes.map(|one| one.address.as_str()));
        let overlay = [
            "10.0.1.0",
            "10.0.0.0",
            "fd00::1:0",
            "10.0.1.9",
            "10.0.0.14",
            "10.0.3.0",
        ];
        let all = texts.chain(OUTSIDE).chain(overlay);
        all.map(|one| one.parse().unwrap()).collect()
    }
}

/// Takes one of the objects away.
fn any<T: Object>(dice: &mut Dice, all: &mut Vec<T>) -> Option<tweed_core::object::ObjectKey> {
    (!all.is_empty()).then(|| all.remove(dice.roll(all.len())).key())
}
