//! A Node as its source describes it: data from somebody else, not yet checked.

use std::net::IpAddr;

use super::{Object, ObjectKey};
use crate::mac::Mac;

/// One Node, with only the fields that tweed uses, as text where the text may
/// be wrong: a bad value harms its own Node and is reported by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty where the source has none.
    pub uid: String,
    /// `metadata.creationTimestamp` in seconds since 1970; none counts as oldest.
    pub created: Option<i64>,
    /// `spec.podCIDRs`, or `spec.podCIDR` alone.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`, in their order.
    pub addresses: Vec<NodeAddress>,
    /// What a source knows of the Node's VTEP beyond the defaults.
    pub vtep: VtepOverride,
}

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, …
    pub kind: String,
    /// The address as text.
    pub address: String,
}

/// What replaces the defaults of a Node's VTEP (its InternalIP, the MAC
/// function of its name, its own address as the only accepted source).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VtepOverride {
    /// Outer address of its VXLAN packets.
    pub ip: Option<IpAddr>,
    /// Inner MAC of its VXLAN device.
    pub mac: Option<Mac>,
    /// Outer sources that its VXLAN packets may have.
    pub accepted_sources: Option<Vec<IpAddr>>,
}

impl Object for Node {
    const KINDS: &'static str = "Nodes";

    fn key(&self) -> ObjectKey {
        ObjectKey::from(self.name.as_str())
    }
}
