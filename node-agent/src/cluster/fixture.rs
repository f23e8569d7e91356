//! Nodes for tests, in few words.

use crate::cluster::node::{Node, NodeAddress};

/// A Node of this name and nothing else.
pub(crate) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        ..Node::default()
    }
}

impl Node {
    pub(crate) fn created(self, at: i64) -> Self {
        Self {
            created: Some(at),
            ..self
        }
    }

    pub(crate) fn uid(self, uid: &str) -> Self {
        Self {
            uid: uid.into(),
            ..self
        }
    }

    pub(crate) fn cidr(mut self, cidr: &str) -> Self {
        self.pod_cidrs.push(cidr.into());
        self
    }

    pub(crate) fn internal(self, address: &str) -> Self {
        self.address("InternalIP", address)
    }

    pub(crate) fn address(mut self, kind: &str, address: &str) -> Self {
        self.addresses.push(NodeAddress {
            kind: kind.into(),
            address: address.into(),
        });
        self
    }
}
