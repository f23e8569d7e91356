//! A whole cluster as plain objects, for questions about packets between its ends. The unit
//! tests use this file too.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::node::Node;
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::Labels;
use tweed_planner::policy::EndAddresses;
use tweed_planner::policy::evaluate::{self, Explanation, Packet, Party, PodParty, Policies};
use tweed_planner::policy::verdicts::Direction;

/// Judges a packet at both ends.
pub fn evaluate(policies: &Policies<'_>, packet: &Packet) -> Explanation {
    Explanation {
        egress: evaluate::evaluate(policies, packet, Direction::Out),
        ingress: evaluate::evaluate(policies, packet, Direction::In),
    }
}

/// The objects of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cluster {
    /// Namespaces.
    pub namespaces: Vec<Namespace>,
    /// Pods; of several with one address the youngest that has not ended has it.
    pub pods: Vec<Pod>,
    /// Nodes, with the pod CIDRs that are accepted.
    pub nodes: Vec<Node>,
    /// NetworkPolicies.
    pub network_policies: Vec<NetworkPolicy>,
    /// ClusterNetworkPolicies.
    pub cluster_network_policies: Vec<ClusterNetworkPolicy>,
}

impl Cluster {
    /// The policies.
    pub fn policies(&self) -> Policies<'_> {
        Policies {
            network: self.network_policies.iter().collect(),
            cluster: self.cluster_network_policies.iter().collect(),
            refused: BTreeSet::new(),
        }
    }

    /// Judges a packet between two addresses.
    pub fn evaluate(&self, from: IpAddr, to: IpAddr, protocol: u8, port: u16) -> Explanation {
        let packet = Packet {
            from: self.party(from),
            to: self.party(to),
            protocol,
            port,
        };
        evaluate(&self.policies(), &packet)
    }

    /// What an address is.
    pub fn party(&self, address: IpAddr) -> Party {
        let has = |pod: &&Pod| {
            let mut addresses = pod.addresses.iter();
            !pod.finished
                && !pod.host_network
                && addresses.any(|one| one.parse() == Ok(address))
                && self.may_have(pod, address)
        };
        let age = |pod: &&Pod| {
            // Of those of one second the planner takes the highest hash.
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            let uid = pod.kubelet_uid().map(|uid| hasher.hash_one(uid));
            (pod.created, uid, pod.namespace.clone(), pod.name.clone())
        };
        let youngest = self.pods.iter().filter(has).max_by_key(age);
        let mut party = Party {
            addresses: EndAddresses {
                address,
                aliases: Vec::new(),
            },
            pod: youngest.map(|pod| self.pod_party(pod)),
            nodes: Vec::new(),
        };
        for node in &self.nodes {
            let listed = node.addresses.iter();
            let parsed = listed.filter_map(|one| one.address.parse().ok());
            let own: Vec<IpAddr> = parsed.filter(|ip| !self.is_of_pods(*ip)).collect();
            let overlay = node.pod_cidrs.iter().any(|cidr| {
                let cidr: Option<IpNetwork> = cidr.parse().ok();
                cidr.is_some_and(|cidr| cidr.network() == address)
            });
            if overlay || own.contains(&address) {
                party.nodes.push(node.labels.clone());
            }
            if overlay {
                let same = own.iter().filter(|one| one.is_ipv4() == address.is_ipv4());
                party.addresses.aliases.extend(same);
            }
        }
        party
    }

    /// Whether an address is in the pod CIDRs of any Node.
    fn is_of_pods(&self, address: IpAddr) -> bool {
        let mut cidrs = self.nodes.iter().flat_map(|node| &node.pod_cidrs);
        cidrs.any(|cidr| is_in(address, cidr))
    }

    /// Whether an address is in the pod CIDRs of the pod's node.
    fn may_have(&self, pod: &Pod, address: IpAddr) -> bool {
        let nodes = self.nodes.iter().filter(|node| node.name == pod.node);
        let mut cidrs = nodes.flat_map(|node| &node.pod_cidrs);
        cidrs.any(|cidr| is_in(address, cidr))
    }

    fn pod_party(&self, pod: &Pod) -> PodParty {
        PodParty {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            labels: pod.labels.clone(),
            namespace_labels: self.namespace_labels(&pod.namespace),
            ports: pod.ports.clone(),
        }
    }

    fn namespace_labels(&self, name: &str) -> Labels {
        let known = self.namespaces.iter().find(|one| one.name == name);
        let mut labels = known.map(|one| one.labels.clone()).unwrap_or_default();
        labels.insert(Namespace::NAME_LABEL.to_owned(), name.to_owned());
        labels
    }
}

/// Whether an address is in a CIDR; none is in what is no CIDR.
fn is_in(address: IpAddr, cidr: &str) -> bool {
    let network = cidr.parse::<IpNetwork>();
    network.is_ok_and(|network| network.contains(address))
}
