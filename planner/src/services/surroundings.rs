//! What the plan needs to know of this node and of the networks of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::object::node::Node;

use super::desired::Span;
use super::options::Options;
use super::spec::{FAMILIES, address};
use crate::addresses::{Range, merged, parse_cidr, range, span, without};

/// The label of a Node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What of the Nodes counts.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Whether the Nodes have been set at all.
    pub complete: bool,
    /// The pod CIDRs of each Node.
    pod_cidrs: BTreeMap<String, Vec<IpNetwork>>,
    /// This Node.
    pub own: Own,
}

/// What of this Node counts; nothing before it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Own {
    /// Its zone; empty if it is in none.
    pub zone: String,
    /// All its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The first address of each family.
    pub primary: Vec<IpAddr>,
    /// Its pod CIDRs.
    pub pod_cidrs: Vec<IpNetwork>,
}

fn pod_cidrs(node: &Node) -> Vec<IpNetwork> {
    let cidrs = node.pod_cidrs.iter();
    cidrs.filter_map(|cidr| parse_cidr(cidr)).collect()
}

impl Own {
    fn read(node: &Node) -> Self {
        let of_kind = |kind: &'static str| {
            let of_kind = node.addresses.iter().filter(move |one| one.kind == kind);
            of_kind.filter_map(|one| address(&one.address))
        };
        let usable = || of_kind("InternalIP").chain(of_kind("ExternalIP"));
        let first = |family| usable().find(|ip| Family::of(*ip) == family);
        Self {
            zone: node.labels.get(ZONE_LABEL).cloned().unwrap_or_default(),
            addresses: usable().collect(),
            primary: FAMILIES.into_iter().filter_map(first).collect(),
            pod_cidrs: pod_cidrs(node),
        }
    }
}

impl Surroundings {
    /// Sets all Nodes. True if anything changed.
    pub fn replace<'a>(&mut self, own: &str, nodes: impl IntoIterator<Item = &'a Node>) -> bool {
        let nodes: BTreeMap<&str, &Node> =
            nodes.into_iter().map(|n| (n.name.as_str(), n)).collect();
        let mut changed = !std::mem::replace(&mut self.complete, true);
        let gone = self.pod_cidrs.keys().map(String::as_str).chain([own]);
        let gone: Vec<String> = (gone.filter(|name| !nodes.contains_key(name)))
            .map(str::to_owned)
            .collect();
        for name in gone {
            changed |= self.set(own, &name, None);
        }
        for (name, node) in nodes {
            changed |= self.set(own, name, Some(node));
        }
        changed
    }

    /// Sets or removes a Node; `own` is the name of this one. True if anything changed.
    pub fn set(&mut self, own: &str, name: &str, node: Option<&Node>) -> bool {
        let cidrs = node.map(pod_cidrs).unwrap_or_default();
        let mut changed = self.pod_cidrs.get(name).map_or(&[][..], |known| known) != cidrs;
        if changed {
            match cidrs.is_empty() {
                true => self.pod_cidrs.remove(name),
                false => self.pod_cidrs.insert(name.to_owned(), cidrs),
            };
        }
        if name == own {
            let read = node.map(Own::read).unwrap_or_default();
            changed |= self.own != read;
            self.own = read;
        }
        changed
    }

    /// Where the pods of the cluster are.
    pub fn pod_networks(&self, options: &Options) -> BTreeSet<Span> {
        let given = &options.cluster_cidrs;
        let found: Vec<IpNetwork> = self.pod_cidrs.values().flatten().copied().collect();
        let of_family = |family| {
            let is = |one: &&IpNetwork| Family::of(one.network()) == family;
            let networks = match given.iter().any(|one| is(&one)) {
                true => given,
                false => &found,
            };
            let ranges = networks.iter().filter(is).map(range).collect();
            spans(family, ranges)
        };
        FAMILIES.into_iter().flat_map(of_family).collect()
    }

    /// Where node ports are.
    pub fn node_port_networks(&self, options: &Options) -> BTreeSet<Span> {
        let addresses = &options.node_port_addresses;
        let primary = self.own.primary.iter().filter(|_| addresses.primary);
        let primary = primary.copied().map(IpNetwork::from);
        let networks: Vec<IpNetwork> = primary.chain(addresses.networks.iter().copied()).collect();
        let loopback = ["127.0.0.0/8", "::1/128"].map(parse_cidr);
        let loopback: Vec<IpNetwork> = loopback.into_iter().flatten().collect();
        let of_family = |family| {
            let is = |one: &&IpNetwork| Family::of(one.network()) == family;
            let networks = networks.iter().filter(is);
            let ranges = networks.flat_map(|one| without(one, &loopback)).collect();
            spans(family, ranges)
        };
        FAMILIES.into_iter().flat_map(of_family).collect()
    }
}

/// The union of CIDRs; what is none is left out.
pub fn union<'a>(cidrs: impl IntoIterator<Item = &'a String>) -> BTreeSet<Span> {
    let networks: Vec<IpNetwork> = (cidrs.into_iter())
        .filter_map(|cidr| parse_cidr(cidr))
        .collect();
    let of_family = |family| {
        let is = |one: &&IpNetwork| Family::of(one.network()) == family;
        spans(family, networks.iter().filter(is).map(range).collect())
    };
    FAMILIES.into_iter().flat_map(of_family).collect()
}

fn spans(family: Family, ranges: Vec<Range>) -> Vec<Span> {
    let merged = merged(ranges).into_iter();
    merged.map(|range| span(family, range)).collect()
}
