//! A case: a cluster with policies, and the first packets of flows in it.
//!
//! Everything is chosen from few names, labels, addresses and ports, so that policies,
//! pods and packets meet often.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::pod::{NamedPort, Pod};
use tweed_core::object::selector::Labels;

use super::cluster::Cluster;
use super::manifest;
use super::policies::{cluster_network_policy, network_policy};

/// Number of Nodes, of which each has room for the pods of this test.
const NODES: u8 = 3;
/// Maximum number of pods.
const PODS: usize = 7;
/// Number of packets of a case.
pub const PACKETS: usize = 300;

pub const NAMESPACES: [&str; 3] = ["one", "two", "three"];
pub const LABEL_KEYS: [&str; 2] = ["app", "tier"];
pub const LABEL_VALUES: [&str; 2] = ["x", "y"];
pub const PORT_NAMES: [&str; 2] = ["web", "dns"];
pub const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
pub const PORTS: [u16; 7] = [1, 53, 80, 81, 8080, 8081, 65535];

/// What is judged.
#[derive(Clone)]
pub struct Case {
    pub namespaces: Vec<Namespace>,
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub policies: Vec<NetworkPolicy>,
    pub cluster_policies: Vec<ClusterNetworkPolicy>,
    pub packets: Vec<Packet>,
}

impl Case {
    /// Its objects, for the planner's own evaluator.
    pub fn cluster(&self) -> Cluster {
        Cluster {
            namespaces: self.namespaces.clone(),
            pods: self.pods.clone(),
            nodes: self.nodes.clone(),
            network_policies: self.policies.clone(),
            cluster_network_policies: self.cluster_policies.clone(),
        }
    }

    /// The addresses of a Node that count as a source at a packet's destination, where the
    /// source is its address in the overlay.
    pub fn same_node(&self, source: IpAddr) -> Option<Vec<IpAddr>> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| overlay_addresses(node).contains(&source))?;
        let mut addresses = addresses(node);
        addresses.retain(|one| one.is_ipv4() == source.is_ipv4());
        Some(addresses)
    }

    /// The case with blocks that except all addresses of a Node, those of the overlay too,
    /// if they except one that it has in its status.
    pub fn excepting_whole_nodes(&self) -> Self {
        let mut case = self.clone();
        let rules = case.policies.iter_mut().flat_map(|one| &mut one.ingress);
        for peer in rules.flat_map(|rule| &mut rule.peers) {
            if let Peer::Block { except, .. } = peer {
                let nodes = self.nodes.iter();
                let whole: Vec<String> = nodes.flat_map(|node| whole_if_in(node, except)).collect();
                except.extend(whole);
            }
        }
        case
    }
}

/// The addresses of each family of a Node as CIDRs, if one of its status is in these.
fn whole_if_in(node: &Node, except: &[String]) -> Vec<String> {
    let parse = |one: &String| one.parse::<IpNetwork>().ok();
    let except: Vec<IpNetwork> = except.iter().filter_map(parse).collect();
    let own = addresses(node);
    let is_in = |family: bool| {
        let mut of_family = own.iter().filter(|one| one.is_ipv4() == family);
        of_family.any(|one| except.iter().any(|cidr| cidr.contains(*one)))
    };
    let all = own.iter().copied().chain(overlay_addresses(node));
    all.filter(|one| is_in(one.is_ipv4()))
        .map(|one| IpNetwork::from(one).to_string())
        .collect()
}

/// The addresses of a Node's status.
pub fn addresses(node: &Node) -> Vec<IpAddr> {
    let addresses = node.addresses.iter();
    addresses
        .filter_map(|one| one.address.parse().ok())
        .collect()
}

/// The first addresses of a Node's pod CIDRs.
pub fn overlay_addresses(node: &Node) -> Vec<IpAddr> {
    let listed = node.pod_cidrs.iter();
    let cidrs = listed.filter_map(|cidr| cidr.parse::<IpNetwork>().ok());
    cidrs.map(|cidr| cidr.network()).collect()
}

impl Packet {
    /// The number of its protocol.
    pub fn number(&self) -> u8 {
        match self.protocol {
            "TCP" => 6,
            "UDP" => 17,
            "SCTP" => 132,
            _ if self.source.is_ipv4() => 1,
            _ => 58,
        }
    }
}

impl fmt::Debug for Case {
    /// The objects as the judge gets them, without the packets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", manifest::cluster(self))
    }
}

/// The first packet of a flow, as the receiver would see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// One of [`PROTOCOLS`], or empty: ICMP or ICMPv6.
    pub protocol: &'static str,
    /// The destination's port; 0 for ICMP.
    pub port: u16,
}

/// A random case.
pub fn case() -> impl Strategy<Value = Case> {
    let policies = vec(network_policy(), 0..6);
    let cluster_policies = vec(cluster_network_policy(), 0..6);
    // They are not simplified: the one that makes the difference is named.
    let packets = vec(packet(), PACKETS).no_shrink();
    let cluster = (vec(labels(), NAMESPACES.len()), vec(labels(), 3), pods());
    (cluster, policies, cluster_policies, packets).prop_map(
        |((namespaces, nodes, pods), mut policies, mut cluster_policies, packets)| {
            for (index, policy) in policies.iter_mut().enumerate() {
                policy.name = format!("policy-{index}");
            }
            for (index, policy) in cluster_policies.iter_mut().enumerate() {
                policy.name = format!("policy-{index}");
            }
            let nodes: Vec<Node> = (0..NODES).zip(nodes).map(node).collect();
            let ends = [
                ends(&nodes, &pods, IpAddr::is_ipv4),
                ends(&nodes, &pods, IpAddr::is_ipv6),
            ];
            Case {
                namespaces: NAMESPACES.iter().zip(namespaces).map(namespace).collect(),
                packets: packets
                    .into_iter()
                    .map(|packet| packet.between(&ends))
                    .collect(),
                nodes,
                pods,
                policies,
                cluster_policies,
            }
        },
    )
}

fn namespace((name, mut labels): (&&str, Labels)) -> Namespace {
    // As the API server sets it.
    labels.insert("kubernetes.io/metadata.name".to_owned(), (*name).to_owned());
    Namespace {
        name: (*name).to_owned(),
        labels,
        ..Namespace::default()
    }
}

pub fn labels() -> impl Strategy<Value = Labels> {
    subsequence(&LABEL_KEYS, 0..=LABEL_KEYS.len())
        .prop_flat_map(|keys| {
            let count = keys.len();
            (Just(keys), vec(select(&LABEL_VALUES), count))
        })
        .prop_map(|(keys, values)| {
            let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            keys.into_iter().zip(values).map(owned).collect()
        })
}

fn node((index, labels): (u8, Labels)) -> Node {
    let address = |kind: &str, address: String| NodeAddress {
        kind: kind.to_owned(),
        address,
    };
    Node {
        name: node_name(index),
        pod_cidrs: vec![
            format!("10.0.{index}.0/24"),
            format!("fd00:0:0:{index}::/64"),
        ],
        addresses: vec![
            address("InternalIP", format!("192.0.2.{}", index + 1)),
            address("InternalIP", format!("fd01::{}", index + 1)),
            address("ExternalIP", format!("198.51.100.{}", index + 1)),
            address("Hostname", node_name(index)),
        ],
        labels: labels.into(),
        ..Node::default()
    }
}

fn node_name(index: u8) -> String {
    format!("node-{index}")
}

/// How a pod uses the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    V4,
    V6,
    Both,
    /// The Node's.
    Host,
    /// No address yet.
    None,
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let network = prop_oneof![
        6 => Just(Network::Both),
        3 => Just(Network::V4),
        2 => Just(Network::V6),
        1 => Just(Network::Host),
        1 => Just(Network::None),
    ];
    let finished = prop::bool::weighted(0.1);
    let pod = (
        select(&NAMESPACES),
        labels(),
        network,
        named_ports(),
        finished,
        any::<bool>(),
    );
    vec(pod, 1..=PODS).prop_map(|pods| {
        let mut made: Vec<Pod> = Vec::new();
        for (index, (namespace, labels, network, ports, finished, again)) in (0_u8..).zip(pods) {
            let number = index % NODES;
            let mut node = node_name(number);
            let mut addresses = addresses_of(network, number, index);
            // The address of a pod that has finished may be in use by another one.
            let before = made
                .last()
                .filter(|before| before.finished && !before.host_network);
            if let Some(before) = before
                && again
                && !finished
                && network != Network::Host
            {
                addresses.clone_from(&before.addresses);
                node.clone_from(&before.node);
            }
            made.push(Pod {
                namespace: namespace.to_owned(),
                name: format!("pod-{index}"),
                labels,
                node,
                host_network: network == Network::Host,
                ports,
                addresses,
                finished,
                ..Pod::default()
            });
        }
        made
    })
}

fn addresses_of(network: Network, node: u8, index: u8) -> Vec<String> {
    let v4 = format!("10.0.{node}.{}", index + 10);
    // As the API has it: the shortest text.
    let address = Ipv6Addr::new(0xfd00, 0, 0, node.into(), 0, 0, 0, u16::from(index) + 10);
    let v6 = address.to_string();
    match network {
        Network::V4 => vec![v4],
        Network::V6 => vec![v6],
        Network::Both => vec![v4, v6],
        Network::Host => vec![format!("192.0.2.{}", node + 1)],
        Network::None => Vec::new(),
    }
}

fn named_ports() -> impl Strategy<Value = Vec<NamedPort>> {
    let drawn = (select(&PORT_NAMES), select(&PROTOCOLS), select(&PORTS));
    let port = drawn.prop_map(|(name, protocol, port)| NamedPort {
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        port,
    });
    vec(port, 0..4)
}

/// A packet whose ends are not chosen yet.
#[derive(Debug, Clone)]
struct Draft {
    v6: bool,
    source: Index,
    destination: Index,
    protocol: &'static str,
    port: u16,
}

fn packet() -> impl Strategy<Value = Draft> {
    let protocol = prop_oneof![
        5 => Just("TCP"), 3 => Just("UDP"), 2 => Just("SCTP"), 1 => Just(""),
    ];
    let port = prop_oneof![4 => select(&PORTS), 1 => 1..=u16::MAX];
    let parts = (
        any::<bool>(),
        any::<Index>(),
        any::<Index>(),
        protocol,
        port,
    );
    parts.prop_map(|(v6, source, destination, protocol, port)| Draft {
        v6,
        source,
        destination,
        protocol,
        port: if protocol.is_empty() { 0 } else { port },
    })
}

impl Draft {
    fn between(&self, ends: &[Vec<IpAddr>; 2]) -> Packet {
        let ends = &ends[usize::from(self.v6)];
        // The Nodes' addresses in the overlay are last, and nothing is sent to these.
        let destinations = &ends[..ends.len() - usize::from(NODES)];
        Packet {
            source: *self.source.get(ends),
            destination: *self.destination.get(destinations),
            protocol: self.protocol,
            port: self.port,
        }
    }
}

/// All addresses of a family that packets come from or go to: of pods, each of them three
/// times, because policies are about these; of Nodes; of a pod CIDR without a pod; outside;
/// and at the end of Nodes in the overlay.
fn ends(nodes: &[Node], pods: &[Pod], family: fn(&IpAddr) -> bool) -> Vec<IpAddr> {
    let of_pods = pods.iter().flat_map(|pod| pod.addresses.iter());
    let thrice = of_pods.flat_map(|address| [address; 3]);
    let parsed = thrice.filter_map(|text| text.parse().ok());
    let mut ends: Vec<IpAddr> = parsed.chain(nodes.iter().flat_map(addresses)).collect();
    ends.extend([
        IpAddr::from(Ipv4Addr::new(10, 0, 1, 200)),
        IpAddr::from(Ipv4Addr::new(203, 0, 113, 5)),
        IpAddr::from(Ipv4Addr::new(203, 0, 113, 77)),
        IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 0x200)),
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5)),
    ]);
    ends.extend(nodes.iter().flat_map(overlay_addresses));
    ends.retain(family);
    ends
}
