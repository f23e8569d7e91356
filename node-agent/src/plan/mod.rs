//! What the kernel should hold: decided purely, from data alone.
//!
//! One entry point, [`plan`]: config, the Nodes and what this machine has go
//! in, [`Desired`] comes out. The same input gives the same plan, whatever
//! happened before.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::cluster::Cluster;
use crate::config::{Config, Family};
use crate::problem::Problem;

pub mod desired;
pub mod host;

use desired::Desired;
use host::HostFacts;

/// The outcome of planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What this node's network should be; none means **hold**: leave all that
    /// is there as it is, and go on mending the last plan that had one.
    ///
    /// A plan holds when this node's own part is missing or in dispute: no pod
    /// CIDR, a CIDR or an address that was refused, an address that is on no
    /// interface, an MTU that carries nothing. None of these says that the
    /// pods which run here have lost their network, and a plan without the own
    /// part would take it from them. So nothing is made, nothing is removed,
    /// and other nodes' changes wait, until a person or the next event mends
    /// it; `problems` says what and how. A node in dispute stays behind alone:
    /// the others plan without it.
    pub network: Option<Network>,
    /// What is wrong, ours and other Nodes'.
    pub problems: Vec<Problem>,
}

/// A node's network: the kernel's part, and what others need to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// What the kernel should hold.
    pub desired: Desired,
    /// Own pod CIDRs, at most one per family, in the Node's order: the ranges
    /// of the conflist.
    pub pod_cidrs: Vec<IpNetwork>,
    /// MTU of pods, in bytes.
    pub pod_mtu: u32,
    /// The underlay's end on this machine.
    pub underlay: Underlay,
    /// For every family that pods have: the source of the node's packets to
    /// its own pods, `hostSource` of the conflist. That of the underlay's
    /// family is the underlay address; of the other family it is the Node's
    /// address, or, where it has none, the VXLAN device's; with neither the
    /// family is missing here.
    pub host_sources: BTreeMap<Family, IpAddr>,
}

/// Where this node meets the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Own address.
    pub address: IpAddr,
    /// Index of the interface that has it.
    pub interface: u32,
    /// Name of the interface.
    pub name: String,
    /// MTU of the interface, in bytes.
    pub mtu: u32,
}

impl Network {
    /// Whether `ip` belongs to this node's pods. A local pod with an address
    /// for which this is false was made before the own CIDR changed: it is to
    /// be named and restarted, and its address is never handed out again.
    #[must_use]
    pub fn holds(&self, ip: IpAddr) -> bool {
        self.pod_cidrs.iter().any(|cidr| cidr.contains(ip))
    }
}

/// Decides what this node's network should be.
#[must_use]
pub fn plan(config: &Config, cluster: &Cluster, host: &HostFacts) -> Plan {
    let _ = (config, cluster, host);
    Plan {
        network: None,
        problems: Vec::new(),
    }
}
