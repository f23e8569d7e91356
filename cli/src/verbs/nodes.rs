//! What is the same of several nodes is printed once, with their names.

use std::collections::BTreeMap;

use tweed_component::explain::listed;

/// Maximum number of nodes that are named.
const MAX_NODES: usize = 8;

/// The nodes of each text, or of each other thing.
pub(super) fn grouped<'a, K: Ord>(
    things: impl Iterator<Item = (K, &'a str)>,
) -> BTreeMap<K, Vec<&'a str>> {
    let mut grouped: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for (thing, node) in things {
        grouped.entry(thing).or_default().push(node);
    }
    grouped
}

/// Their names, as many as a line has room for.
pub(super) fn named(nodes: &[&str]) -> String {
    listed(nodes.iter().map(|node| (*node).to_owned()), MAX_NODES)
}
