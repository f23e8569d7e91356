//! The Nodes as policies see them: their labels and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::object::node::Node;
use tweed_core::object::selector::Labels;

use crate::addresses::parse_cidr;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its labels.
    pub labels: Arc<Labels>,
    /// `status.addresses`.
    pub addresses: BTreeSet<IpAddr>,
    /// The first address of each of its pod CIDRs: packets of the Node itself leave with
    /// it through the overlay.
    pub overlay: BTreeSet<IpAddr>,
}

/// All Nodes.
#[derive(Debug, Default)]
pub struct NodeIndex {
    nodes: BTreeMap<String, NodeEntry>,
    by_address: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Whether they have been set at all.
    pub complete: bool,
    touched: BTreeSet<IpAddr>,
}

impl NodeIndex {
    /// Sets or removes a Node. True if anything changed.
    pub fn set(&mut self, name: &str, node: Option<&Node>) -> bool {
        let entry = node.map(entry);
        if self.nodes.get(name) == entry.as_ref() {
            return false;
        }
        if let Some(old) = self.nodes.remove(name) {
            for address in old.addresses.union(&old.overlay) {
                self.touched.insert(*address);
                if let Some(names) = self.by_address.get_mut(address) {
                    names.remove(name);
                    if names.is_empty() {
                        self.by_address.remove(address);
                    }
                }
            }
        }
        if let Some(entry) = entry {
            for address in entry.addresses.union(&entry.overlay) {
                self.touched.insert(*address);
                let names = self.by_address.entry(*address).or_default();
                names.insert(name.to_owned());
            }
            self.nodes.insert(name.to_owned(), entry);
        }
        true
    }

    /// Sets all Nodes. True if anything changed.
    pub fn replace<'a>(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> bool {
        let nodes: BTreeMap<&str, &Node> =
            nodes.into_iter().map(|n| (n.name.as_str(), n)).collect();
        let mut changed = !std::mem::replace(&mut self.complete, true);
        let gone: Vec<String> = self.nodes.keys().cloned().collect();
        for name in gone
            .iter()
            .filter(|name| !nodes.contains_key(name.as_str()))
        {
            changed |= self.set(name, None);
        }
        for (name, node) in nodes {
            changed |= self.set(name, Some(node));
        }
        changed
    }

    /// The Nodes that have an address.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = (&str, &NodeEntry)> {
        let names = self.by_address.get(&address).into_iter().flatten();
        names.filter_map(|name| Some((name.as_str(), self.nodes.get(name)?)))
    }

    /// Every address of a Node.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_address.keys().copied()
    }

    /// Whose addresses may mean something else than when this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.touched)
    }
}

fn entry(node: &Node) -> NodeEntry {
    let addresses = node
        .addresses
        .iter()
        .filter_map(|one| one.address.parse().ok());
    let cidrs = node.pod_cidrs.iter().filter_map(|cidr| parse_cidr(cidr));
    NodeEntry {
        labels: node.labels.clone(),
        addresses: addresses.collect(),
        overlay: cidrs.map(|cidr| cidr.network()).collect(),
    }
}

impl NodeEntry {
    /// The addresses that count as this one of the Node when CIDRs are compared, besides
    /// itself: for one of the overlay those of the Node of the same family.
    pub fn aliases(&self, address: IpAddr) -> impl Iterator<Item = IpAddr> {
        let others = self.overlay.contains(&address).then_some(&self.addresses);
        let others = others.into_iter().flatten().copied();
        others.filter(move |one| one.is_ipv4() == address.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NodeFixture as _, node};

    #[test]
    fn only_the_address_of_the_overlay_counts_as_others_of_its_node() {
        let node = node("a")
            .cidr("10.244.1.0/24")
            .cidr("fd00:0:0:1::/64")
            .internal("192.0.2.2")
            .address("ExternalIP", "203.0.113.2")
            .internal("2001:db8::2");
        let entry = entry(&node);
        let aliases = |address: &str| -> Vec<String> {
            let aliases = entry.aliases(address.parse().unwrap());
            aliases.map(|one| one.to_string()).collect()
        };
        assert_eq!(aliases("10.244.1.0"), ["192.0.2.2", "203.0.113.2"]);
        assert_eq!(aliases("fd00:0:0:1::"), ["2001:db8::2"]);
        // A policy for one of them is not one for the others.
        for own in ["192.0.2.2", "203.0.113.2", "2001:db8::2"] {
            assert_eq!(aliases(own), [""; 0], "{own}");
        }
    }
}
