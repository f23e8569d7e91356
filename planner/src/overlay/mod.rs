//! What the kernel should hold: decided purely, from data alone.
//!
//! One entry point, [`plan`]: config, the Nodes and what this machine has go
//! in, [`Desired`] comes out. The same input gives the same plan, whatever
//! happened before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::config::{Backend, Config, Masquerade, MasqueradeNodes};
use crate::overlay::claims::{Rules, Verdict, judge};
use crate::overlay::cluster::Cluster;
use tweed_core::family::Family;
use tweed_core::problem::Problem;

pub mod claims;
pub mod cluster;
pub mod delta;
pub mod desired;
pub mod host;
mod local;
mod peers;
pub mod planner;
pub mod refusal;
pub mod syntax;
pub mod vtep;

use desired::{Desired, Route, RouteKey, Ruleset, UNREACHABLE_METRIC, VxlanDevice, VxlanMatch};
use host::HostFacts;
use local::Local;

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
    /// Whether a claim of any Node was refused.
    pub contested: bool,
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
    let node = cluster.own();
    let family = local::underlay_family(config, node);
    let verdict = judge(cluster, &rules(config, family, host));
    let mut problems = refusal::problems(&verdict.refusals, &node.name);
    let network = Local::find(config, node, family, &verdict, host, &mut problems)
        .map(|local| network(config, &local, &verdict, host, &mut problems));
    problems.sort_unstable();
    Plan {
        network,
        problems,
        contested: !verdict.refusals.is_empty(),
    }
}

fn rules<'a>(config: &'a Config, family: Option<Family>, host: &HostFacts) -> Rules<'a> {
    let mut families: BTreeSet<Family> = family.into_iter().collect();
    if !families.is_empty() && config.backend != Backend::Vxlan {
        // A direct route leads to an address of its own family.
        families.extend([Family::V4, Family::V6]);
    }
    let addresses = host.interfaces.values().flat_map(|i| &i.addresses);
    Rules {
        cluster_cidrs: &config.cluster_cidrs,
        underlay: config.underlay,
        families,
        connected: host.connected.iter().map(|c| c.destination).collect(),
        local: addresses.map(|address| address.network.ip()).collect(),
    }
}

fn network(
    config: &Config,
    local: &Local,
    verdict: &Verdict<'_>,
    host: &HostFacts,
    problems: &mut Vec<Problem>,
) -> Network {
    let mut desired = Desired {
        forwarding: local.pod_cidrs.iter().map(|c| Family::of(c.ip())).collect(),
        ruleset: ruleset(config, local, verdict),
        ..Desired::default()
    };
    if let Some(mac) = local.vtep_mac {
        desired.vxlan = Some(VxlanDevice {
            name: device_name(config),
            vni: config.vni,
            port: config.vxlan_port,
            local: local.underlay.address,
            mac,
            mtu: local.pod_mtu,
        });
        desired.vxlan_addresses = (local.pod_cidrs.iter())
            .map(|cidr| IpNetwork::from(cidr.network()))
            .collect();
    }
    // With the union of the Nodes' CIDRs for a cluster CIDR, each remote CIDR
    // has a route of its own and there is nothing between them to answer for:
    // one Node more or less stays one route.
    let pods = |cidr: &&IpNetwork| desired.forwarding.contains(&Family::of(cidr.ip()));
    let nobodys = (local.pod_cidrs.iter()).chain(config.cluster_cidrs.iter().filter(pods));
    desired.routes = nobodys
        .map(|cidr| (unreachable(*cidr), Route::Unreachable))
        .collect();
    peers::add(&mut desired, config, local, verdict, host, problems);
    Network {
        desired,
        host_sources: local.host_sources.clone(),
        pod_cidrs: local.pod_cidrs.clone(),
        pod_mtu: local.pod_mtu,
        underlay: local.underlay.clone(),
    }
}

fn ruleset(config: &Config, local: &Local, verdict: &Verdict<'_>) -> Ruleset {
    let given: BTreeSet<Family> = (config.cluster_cidrs.iter())
        .map(|cidr| Family::of(cidr.ip()))
        .collect();
    let union = (verdict.members.values())
        .flat_map(|member| &member.pod_cidrs)
        .filter(|cidr| !given.contains(&Family::of(cidr.ip())));
    Ruleset {
        masquerade: match config.masquerade {
            Masquerade::Off => None,
            how => Some(how),
        },
        masquerade_nodes: match config.masquerade_nodes {
            MasqueradeNodes::On => true,
            MasqueradeNodes::Off => false,
            // With cross-subnet some nodes are behind a router, which knows
            // the nodes' addresses and no pod's.
            MasqueradeNodes::Auto => config.backend != Backend::Direct,
        },
        vxlan: local.vtep_mac.map(|_| VxlanMatch {
            device: device_name(config),
            vni: config.vni,
            port: config.vxlan_port,
        }),
        local_cidrs: local.pod_cidrs.iter().copied().collect(),
        cluster_cidrs: config.cluster_cidrs.iter().chain(union).copied().collect(),
        node_addresses: verdict.node_addresses.clone(),
        vxlan_sources: BTreeSet::new(),
    }
}

/// The key of the route that answers for addresses of nobody in `destination`.
fn unreachable(destination: IpNetwork) -> RouteKey {
    RouteKey {
        destination,
        metric: UNREACHABLE_METRIC,
    }
}

fn device_name(config: &Config) -> String {
    format!("tweed.{}", config.vni)
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

#[cfg(test)]
mod tests;
