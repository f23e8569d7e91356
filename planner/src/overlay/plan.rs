//! The whole plan: what this node's network should be, from config, the Nodes
//! and what this machine has. The same input gives the same plan, whatever
//! happened before.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::problem::Problem;

use super::claims::{Rules, Verdict, judge};
use super::cluster::Snapshot;
use super::desired::{Desired, Network, Route, RouteKey, Ruleset, VxlanDevice, VxlanMatch};
use super::host::HostFacts;
use super::local::{self, Local};
use super::{peers, refusal};
use crate::config::{Backend, Config, Masquerade, MasqueradeNodes};

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

/// Decides what this node's network should be.
#[must_use]
pub fn plan(config: &Config, nodes: &Snapshot<'_>, host: &HostFacts) -> Plan {
    let node = nodes.own;
    let family = local::underlay_family(config, node);
    let verdict = judge(nodes, &rules(config, family, host));
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
        .map(|cidr| (RouteKey::unreachable(*cidr), Route::Unreachable))
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

fn device_name(config: &Config) -> String {
    format!("tweed.{}", config.vni)
}
