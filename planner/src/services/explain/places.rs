//! Which Node an address belongs to. The planner does not keep the names, for there may be
//! very many.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::object::node::Node;

/// The Nodes' addresses, and then their pod CIDRs, each with the name of the Node.
#[derive(Debug, Default)]
pub struct Places<'a>(Vec<(IpNetwork, &'a str)>);

impl<'a> Places<'a> {
    /// Of these Nodes.
    #[must_use]
    pub fn of(nodes: &'a [Node]) -> Self {
        let addresses = nodes.iter().flat_map(|node| {
            let texts = node.addresses.iter();
            let parsed = texts.filter_map(|one| one.address.parse::<IpAddr>().ok());
            parsed.map(|address| (address.into(), node.name.as_str()))
        });
        let cidrs = nodes.iter().flat_map(|node| {
            let texts = node.pod_cidrs.iter();
            let parsed = texts.filter_map(|cidr| cidr.parse().ok());
            parsed.map(|cidr| (cidr, node.name.as_str()))
        });
        Self(addresses.chain(cidrs).collect())
    }

    /// The Node that has an address, or else that of whose pods it may be.
    pub(super) fn find(&self, address: IpAddr) -> Option<&'a str> {
        let found = self.0.iter().find(|(cidr, _)| cidr.contains(address));
        found.map(|(_, node)| *node)
    }
}
