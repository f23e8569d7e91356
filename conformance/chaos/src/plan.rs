//! What each node's kernel should hold, from the Nodes that were published and the pods
//! that were attached. It is derived from the documents of tweed and shares no code
//! with it.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;
use sha2::{Digest, Sha256};

/// All nodes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each node, with its pods.
    pub nodes: Vec<NodePlan>,
}

/// A node.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Its number.
    pub index: u8,
    /// Its name.
    pub name: String,
    /// Its address on the underlay.
    pub address: Ipv4Addr,
    /// Its pod CIDRs.
    pub cidrs: Vec<IpNetwork>,
    /// Its pods.
    pub pods: Vec<PodPlan>,
}

/// A pod.
#[derive(Debug, Clone)]
pub struct PodPlan {
    /// Name of its link's host end.
    pub link: String,
    /// MAC of its end of the link.
    pub mac: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// MTU of its link.
    pub mtu: u64,
}

impl Plan {
    /// The nodes other than `node`.
    pub fn others<'a>(&'a self, node: &'a NodePlan) -> impl Iterator<Item = &'a NodePlan> {
        self.nodes.iter().filter(|other| other.index != node.index)
    }
}

impl NodePlan {
    /// The MAC of its VXLAN device: the first six bytes of a hash of its name, as a
    /// locally administered unicast address.
    pub fn vtep_mac(&self) -> String {
        let hash = Sha256::new()
            .chain_update("tweed-vtep\0")
            .chain_update(&self.name)
            .finalize();
        let bytes = hash
            .iter()
            .take(6)
            .enumerate()
            .map(|(place, byte)| match place {
                0 => format!("{:02x}", (byte | 2) & !1),
                _ => format!("{byte:02x}"),
            });
        bytes.collect::<Vec<_>>().join(":")
    }

    /// The first address of each of its pod CIDRs, which its VXLAN device has.
    pub fn overlay_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.cidrs.iter().map(IpNetwork::network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vtep_mac_is_that_of_the_documents() {
        let node = NodePlan {
            index: 1,
            name: "node1".to_owned(),
            address: Ipv4Addr::LOCALHOST,
            cidrs: Vec::new(),
            pods: Vec::new(),
        };
        // printf 'tweed-vtep\0node1' | sha256sum
        assert_eq!(node.vtep_mac(), "3e:70:4c:dd:c0:d8");
    }
}
