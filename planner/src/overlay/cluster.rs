//! A good snapshot of the Nodes.

use std::collections::BTreeMap;

use tweed_core::object::node::Node;

/// A good snapshot of the Nodes: complete, and with this node's own in it. As
/// the sources told it: not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub(crate) own: Node,
    pub(crate) others: BTreeMap<String, Node>,
}

impl Cluster {
    /// A snapshot of `own` and `others`. One of `others` that bears the own
    /// name is left out.
    #[must_use]
    pub fn new(own: Node, others: impl IntoIterator<Item = Node>) -> Self {
        let others = others
            .into_iter()
            .filter(|node| node.name != own.name)
            .map(|node| (node.name.clone(), node))
            .collect();
        Self { own, others }
    }

    /// The Node that this machine is.
    #[must_use]
    pub fn own(&self) -> &Node {
        &self.own
    }

    /// Every Node, the own one first, the others by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.own).chain(self.others.values())
    }

    /// The other Node of this name.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<&Node> {
        self.others.get(name)
    }

    /// How many Nodes there are, the own one included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.others.len() + 1
    }
}
