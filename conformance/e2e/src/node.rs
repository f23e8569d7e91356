//! A node with both of its addresses.

use std::net::IpAddr;

use anyhow::Result;
use tweed_lab_kubernetes::Machine;

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// A node with its addresses on the underlay and on the overlay.
pub struct NodeEndpoint {
    /// Its namespace, and its address on the underlay.
    pub endpoint: Endpoint,
    overlay: IpAddr,
}

impl NodeEndpoint {
    /// A node of the cluster.
    pub fn of(fixture: &Fixture<'_>, machine: &Machine) -> Result<Self> {
        Ok(Self {
            endpoint: Endpoint::node(machine),
            overlay: fixture.overlay_address(machine.name())?,
        })
    }

    /// Whether both are the same node.
    pub fn is_same(&self, other: &Self) -> bool {
        self.endpoint.name == other.endpoint.name
    }

    /// The source address of its packets to a pod on that node.
    pub fn source_seen_on(&self, node: &Self) -> IpAddr {
        if self.is_same(node) {
            self.endpoint.address
        } else {
            self.overlay
        }
    }
}
