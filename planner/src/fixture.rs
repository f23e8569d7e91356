//! Configs and Nodes for tests, in few words.

mod node;

pub(crate) use node::{NodeFixture, node};
use tweed_core::family::Family;

use crate::config::{Backend, Config, Masquerade, MasqueradeNodes, Mtu};

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
            ["--masquerade-nodes", "on"] => config.masquerade_nodes = MasqueradeNodes::On,
            ["--masquerade-nodes", "off"] => config.masquerade_nodes = MasqueradeNodes::Off,
            _ => panic!("{flag:?} is not known to this fixture"),
        }
    }
    config
}
