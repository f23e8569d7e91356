//! The Nodes as policies see them: their labels and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::object::node::Node;
use tweed_core::object::node_labels::NodeLabels;

use crate::addresses::{Span, spans_of, within};

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its labels.
    pub labels: NodeLabels,
    /// `status.addresses`, without those that are in the pod CIDRs of any Node: a kubelet
    /// writes its own Node's, and would speak for another node's pod.
    pub addresses: BTreeSet<IpAddr>,
    /// Its pod CIDRs, as far as they are accepted: only there its pods have addresses.
    pod_cidrs: Vec<IpNetwork>,
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
    /// The Nodes whose pod CIDRs are others than when they were last taken.
    moved: BTreeSet<String>,
}

impl NodeIndex {
    /// Sets or removes a Node. True if anything changed.
    fn set(&mut self, name: &str, entry: Option<NodeEntry>) -> bool {
        if self.nodes.get(name) == entry.as_ref() {
            return false;
        }
        let old = self.nodes.remove(name);
        let cidrs = |entry: &Option<NodeEntry>| entry.as_ref().map(|one| one.pod_cidrs.clone());
        if cidrs(&old).unwrap_or_default() != cidrs(&entry).unwrap_or_default() {
            self.moved.insert(name.to_owned());
        }
        if let Some(old) = old {
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

    /// Sets all Nodes, each with those of its pod CIDRs that are accepted. True if anything
    /// changed.
    pub fn replace<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a Node, Vec<IpNetwork>)>,
    ) -> bool {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let cidrs: Vec<IpNetwork> = nodes.iter().flat_map(|(_, cidrs)| cidrs).copied().collect();
        let of_pods = spans_of(&cidrs, &[]);
        let all = nodes.into_iter();
        let entries = all.map(|(node, cidrs)| (node.name.as_str(), entry(node, cidrs, &of_pods)));
        let nodes: BTreeMap<&str, NodeEntry> = entries.collect();
        let mut changed = !std::mem::replace(&mut self.complete, true);
        let gone: Vec<String> = self.nodes.keys().cloned().collect();
        for name in gone
            .iter()
            .filter(|name| !nodes.contains_key(name.as_str()))
        {
            changed |= self.set(name, None);
        }
        for (name, entry) in nodes {
            changed |= self.set(name, Some(entry));
        }
        changed
    }

    /// The Nodes that have an address.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = (&str, &NodeEntry)> {
        let names = self.by_address.get(&address).into_iter().flatten();
        names.filter_map(|name| Some((name.as_str(), self.nodes.get(name)?)))
    }

    /// Whether a pod of the Node of this name may have an address.
    pub fn has_pod_address(&self, name: &str, address: IpAddr) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|node| node.pod_cidrs.iter().any(|cidr| cidr.contains(address)))
    }

    /// The Node whose pods may have an address.
    pub fn of_pod_address(&self, address: IpAddr) -> Option<&str> {
        let mut names = self.nodes.keys().map(String::as_str);
        names.find(|name| self.has_pod_address(name, address))
    }

    /// The addresses of the Node of this name; none if there is no such Node.
    pub fn of_name(&self, name: &str) -> Option<&BTreeSet<IpAddr>> {
        Some(&self.nodes.get(name)?.addresses)
    }

    /// Every address of a Node.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_address.keys().copied()
    }

    /// Whose addresses may mean something else than when this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.touched)
    }

    /// The Nodes whose pods may have other addresses than when this was last asked.
    pub fn take_moved(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.moved)
    }
}

fn entry(node: &Node, pod_cidrs: Vec<IpNetwork>, of_pods: &BTreeSet<Span>) -> NodeEntry {
    let listed = node.addresses.iter();
    let addresses = listed.filter_map(|one| one.address.parse().ok());
    NodeEntry {
        labels: node.labels.clone(),
        addresses: addresses.filter(|ip| !within(of_pods, *ip)).collect(),
        overlay: pod_cidrs.iter().map(IpNetwork::network).collect(),
        pod_cidrs,
    }
}

impl NodeEntry {
    /// The addresses that count as this one of the Node when CIDRs are compared, besides
    /// itself: for one of the overlay those of the Node of the same family.
    pub fn aliases(&self, address: IpAddr) -> impl Iterator<Item = IpAddr> {
        let addresses = self.overlay.contains(&address).then_some(&self.addresses);
        let others = addresses.into_iter().flatten().copied();
        others.filter(move |one| one.is_ipv4() == address.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{NodeFixture as _, claimed, node};

    #[test]
    fn only_the_address_of_the_overlay_counts_as_others_of_its_node() {
        let node = node("a")
            .cidr("10.244.1.0/24")
            .cidr("fd00:0:0:1::/64")
            .internal("192.0.2.2")
            .address("ExternalIP", "203.0.113.2")
            .internal("2001:db8::2");
        let entry = entry(&node, claimed(&node), &BTreeSet::new());
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
