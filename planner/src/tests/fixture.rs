//! Short notations for configs and Nodes in tests.

mod node;

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;
pub(crate) use node::{NodeFixture, node};
use tweed_core::family::Family;
use tweed_core::object::node::Node;

use crate::config::{Backend, Config, Masquerade, MasqueradeIpv6, MasqueradeNodes, Mtu};
use crate::overlay::cluster::Snapshot;

/// The Nodes of a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    pub(crate) own: Node,
    others: BTreeMap<String, Node>,
}

impl Nodes {
    /// The last of several Nodes with one name counts, as it does in a store.
    pub(crate) fn new(own: Node, others: impl IntoIterator<Item = Node>) -> Self {
        let other_nodes = others.into_iter().filter(|node| node.name != own.name);
        let others = other_nodes.map(|node| (node.name.clone(), node)).collect();
        Self { own, others }
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            own: &self.own,
            others: self.others.values().collect(),
        }
    }
}

/// The pod CIDRs that a Node claims.
pub(crate) fn claimed(node: &Node) -> Vec<IpNetwork> {
    let claimed = node.pod_cidrs.iter();
    claimed.map(|cidr| cidr.parse().unwrap()).collect()
}

/// The config that the agent of Node `me` makes of these flags.
pub(crate) fn config(line: &str) -> Config {
    let mut config = Config {
        node_name: "me".to_owned(),
        backend: Backend::Vxlan,
        cluster_cidrs: Vec::new(),
        vni: 1,
        vxlan_port: 8472,
        underlay: None,
        underlay_family: None,
        mtu: Mtu::Auto,
        masquerade: Masquerade::RandomFully,
        masquerade_ipv6: MasqueradeIpv6::Auto,
        masquerade_nodes: MasqueradeNodes::Auto,
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    for flag in words.chunks_exact(2) {
        match *flag {
            ["--backend", "vxlan"] => config.backend = Backend::Vxlan,
            ["--backend", "direct"] => config.backend = Backend::Direct,
            ["--backend", "cross-subnet"] => config.backend = Backend::CrossSubnet,
            ["--cluster-cidr", cidrs] => {
                config.cluster_cidrs = cidrs.split(',').map(|c| c.parse().unwrap()).collect();
            }
            ["--vni", vni] => config.vni = vni.parse().unwrap(),
            ["--vxlan-port", port] => config.vxlan_port = port.parse().unwrap(),
            ["--underlay", cidr] => {
                let cidr: ipnetwork::IpNetwork = cidr.parse().unwrap();
                config.underlay = Some(cidr);
                config.underlay_family = Some(Family::of(cidr.ip()));
            }
            ["--underlay-family", "ipv4"] => config.underlay_family = Some(Family::V4),
            ["--underlay-family", "ipv6"] => config.underlay_family = Some(Family::V6),
            ["--mtu", mtu] => config.mtu = Mtu::Fixed(mtu.parse().unwrap()),
            ["--masquerade", "off"] => config.masquerade = Masquerade::Off,
            ["--masquerade", "random"] => config.masquerade = Masquerade::Random,
            ["--masquerade-ipv6", "on"] => config.masquerade_ipv6 = MasqueradeIpv6::On,
            ["--masquerade-ipv6", "off"] => config.masquerade_ipv6 = MasqueradeIpv6::Off,
            ["--masquerade-nodes", "on"] => config.masquerade_nodes = MasqueradeNodes::On,
            ["--masquerade-nodes", "off"] => config.masquerade_nodes = MasqueradeNodes::Off,
            _ => panic!("{flag:?} is not known to this fixture"),
        }
    }
    config
}
