//! The planners of all Nodes of a case, and what the sets and maps that they want would do
//! with a packet: the steps that the documentation of `Desired` describes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tweed_core::attachment::PodName;
use tweed_core::object::{Event, Object};
use tweed_planner::policy::verdicts::{Direction, SELF, UNKNOWN};
use tweed_planner::policy::{Desired, LocalPods, PodScope, PolicyPlanner, Step};

use super::case::{Case, Packet, overlay_addresses};

/// The planners of a case's Nodes.
pub struct Planners {
    /// The Node of each address of a pod that has not finished.
    nodes: BTreeMap<IpAddr, String>,
    planners: BTreeMap<String, PolicyPlanner>,
}

impl Planners {
    /// Plans a case: first with half of the objects, then with the others as changes.
    pub fn of(case: &Case) -> Self {
        let names = case.nodes.iter().map(|node| node.name.clone());
        let planners = names
            .map(|name| (name.clone(), planner(case, &name)))
            .collect();
        let mut nodes = BTreeMap::new();
        for pod in case
            .pods
            .iter()
            .filter(|pod| !pod.finished && !pod.host_network)
        {
            let addresses = pod.addresses.iter().filter_map(|text| text.parse().ok());
            nodes.extend(addresses.map(|address| (address, pod.node.clone())));
        }
        Self { nodes, planners }
    }

    /// Whether the node of the pod at one end of a packet lets it pass in this direction;
    /// `None` if there is no pod.
    pub fn allows(&self, direction: Direction, packet: &Packet) -> Option<bool> {
        let (local, other) = match direction {
            Direction::In => (packet.destination, packet.source),
            Direction::Out => (packet.source, packet.destination),
        };
        let desired = self.planners[self.nodes.get(&local)?].desired();
        Some(allows(desired, direction, local, other, packet))
    }

    /// The name of the Node of the pod with an address.
    pub fn node_of(&self, address: IpAddr) -> Option<&str> {
        self.nodes.get(&address).map(String::as_str)
    }
}

fn planner(case: &Case, node: &str) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new(node);
    let nodes = case.nodes.iter().map(|node| {
        let cidrs = node.pod_cidrs.iter().map(|cidr| cidr.parse().unwrap());
        (node, cidrs.collect())
    });
    planner.set_nodes(nodes);
    let (own, others): (Vec<_>, Vec<_>) =
        case.pods.iter().cloned().partition(|pod| pod.node == node);
    let mut local = LocalPods::default();
    for pod in own.iter().filter(|pod| !pod.finished && !pod.host_network) {
        let name = PodName {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        };
        let addresses = pod.addresses.iter().filter_map(|text| text.parse().ok());
        local
            .pods
            .extend(addresses.map(|address| (address, Some(name.clone().into()))));
    }
    let this = case.nodes.iter().filter(|one| one.name == node);
    local.own.extend(this.flat_map(overlay_addresses));
    planner.set_local(local);
    let namespaces = halves(&case.namespaces);
    let policies = halves(&case.policies);
    let cluster_policies = halves(&case.cluster_policies);
    let own = halves(&own);
    let others = halves(&others);
    for half in 0..2 {
        for event in namespaces[half].clone() {
            planner.apply_namespaces(event);
        }
        for event in policies[half].clone() {
            planner.apply_network_policies(event);
        }
        for event in cluster_policies[half].clone() {
            planner.apply_cluster_network_policies(event);
        }
        for event in own[half].clone() {
            planner.apply_pods(&PodScope::Own, event);
        }
        for event in others[half].clone() {
            planner.apply_pods(&PodScope::All, event);
        }
        let step = planner.plan();
        assert!(!matches!(step, Step::Hold(_)), "{step:?}");
    }
    planner
}

/// A list of every second object, and the others as changes after it.
fn halves<T: Object>(objects: &[T]) -> [Vec<Event<T>>; 2] {
    let mut list = vec![Event::Init];
    let mut changes = Vec::new();
    for (index, object) in objects.iter().cloned().enumerate() {
        match index % 2 {
            0 => list.push(Event::InitApply(object)),
            _ => changes.push(Event::Apply(object)),
        }
    }
    list.push(Event::InitDone);
    [list, changes]
}

fn allows(
    desired: &Desired,
    direction: Direction,
    local: IpAddr,
    other: IpAddr,
    packet: &Packet,
) -> bool {
    if !desired.verdicts.active {
        return true;
    }
    if !desired.verdicts.enforced.contains(&local) {
        return false;
    }
    if !desired.verdicts.policed.get(direction).contains(&local) {
        return true;
    }
    let network = || {
        let mut spans = desired.verdicts.networks.iter();
        spans.find_map(|(span, number)| {
            (span.first <= other && other <= span.last).then_some(*number)
        })
    };
    let identity = if local == other && desired.verdicts.selves.contains(&local) {
        SELF
    } else {
        let single = desired.verdicts.identities.get(&other).copied();
        single.or_else(network).unwrap_or(UNKNOWN)
    };
    let pairs = desired.verdicts.pairs.get(direction);
    let profile = pairs.get(&(local, identity)).copied().unwrap_or(identity);
    let (protocol, port) = (packet.number(), packet.port);
    if desired.ports.open.contains(&profile)
        || desired.ports.exact.contains(&(profile, protocol, port))
    {
        return true;
    }
    let range = desired
        .ports
        .range_profiles
        .get(&(profile, protocol))
        .copied()
        .unwrap_or(profile);
    desired
        .ports
        .ranges
        .iter()
        .any(|one| one.profile == range && (one.first..=one.last).contains(&port))
}
