//! The whole plan: what this node's network should be, from config, the Nodes
//! and what this machine has. The same input gives the same plan, whatever
//! happened before.

use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::{family::Family, object::node::Node, problem::Problem};

use super::basis::Basis;
use super::claims::{Rules, Verdict, judge};
use super::desired::{Desired, Network, Route, RouteKey, Ruleset, Underlay};
use super::desired::{VxlanDevice, VxlanMatch};
use super::local::{self, Local};
use super::{cluster::Snapshot, host::HostFacts};
use super::{peers, refusal, warning};
use crate::config::{Backend, Config, Masquerade, MasqueradeIpv6, MasqueradeNodes};

/// The outcome of planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What this node's network should be; none means **hold**: change nothing,
    /// and keep the kernel at the last plan that had a network.
    ///
    /// A plan holds when this node's own part is missing or refused: no pod
    /// CIDR, a CIDR or an address that was refused, an address that is on no
    /// interface, an MTU that is not known or too small. In none of these cases have the
    /// running pods lost their network, and a plan without the own part would
    /// remove it. So nothing is added or removed, and other nodes' changes wait,
    /// until somebody does what `problems` says. Only this node waits: the
    /// others plan without it.
    pub network: Option<Network>,
    /// Where this node is, if the MTU alone is missing: the way to the others may
    /// tell it.
    pub unmeasured: Option<Place>,
    /// What is wrong with the own part and with other Nodes.
    pub problems: Vec<Problem>,
}

/// The own place on the underlay, and the addresses of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Own address and interface.
    pub underlay: Underlay,
    /// Other nodes' addresses of the same family.
    pub peers: BTreeSet<IpAddr>,
}

/// Decides what this node's network should be.
pub fn plan(config: &Config, nodes: &Snapshot<'_>, host: &HostFacts) -> Plan {
    let own = nodes.own;
    let family = local::underlay_family(config, own);
    let rules = rules(config, own, host);
    let verdict = judge(nodes, &rules);
    let mut problems = refusal::problems(&verdict.refusals, &own.name);
    problems.extend(warning::problems(config, nodes, family, &verdict));
    let basis = Basis {
        config,
        own,
        family,
        verdict: &verdict,
        host,
        local_addresses: &rules.local,
    };
    let local = Local::find(&basis, &mut problems);
    let mtu = (local.as_ref()).and_then(|local| local::pod_mtu(config, local, &mut problems));
    let place = local.as_ref().map(|local| Place {
        underlay: local.underlay.clone(),
        peers: (verdict.members.iter())
            .filter(|(name, _)| **name != own.name)
            .filter_map(|(_, member)| member.addresses.get(&family?).copied())
            .collect(),
    });
    let network = (local.zip(mtu)).map(|(local, mtu)| network(&basis, local, mtu, &mut problems));
    problems.sort_unstable();
    Plan {
        unmeasured: place.filter(|_| network.is_none()),
        network,
        problems,
    }
}

/// What the claims of Nodes are judged by on the machine of the Node `own`.
pub(super) fn rules<'a>(config: &'a Config, own: &Node, host: &HostFacts) -> Rules<'a> {
    let family = local::underlay_family(config, own);
    let mut families: BTreeSet<Family> = family.into_iter().collect();
    if !families.is_empty() && config.backend != Backend::Vxlan {
        // The gateway of a direct route has the same family as the route.
        families.extend([Family::V4, Family::V6]);
    }
    Rules {
        cluster_cidrs: &config.cluster_cidrs,
        underlay: config.underlay,
        families,
        connected: host.connected_networks().collect(),
        local: host.networks().map(|network| network.ip()).collect(),
        edges: host.edges(),
    }
}

fn network(basis: &Basis<'_>, local: Local, pod_mtu: u32, problems: &mut Vec<Problem>) -> Network {
    let config = basis.config;
    let mut desired = Desired {
        forwarding: local.pod_cidrs.iter().map(|c| Family::of(c.ip())).collect(),
        ruleset: ruleset(config, &local, basis.verdict),
        ..Desired::default()
    };
    if let Some(mac) = local.vtep_mac {
        desired.vxlan = Some(VxlanDevice {
            name: device_name(config),
            vni: config.vni,
            port: config.vxlan_port,
            local: local.underlay.address,
            mac,
            mtu: pod_mtu,
        });
        desired.vxlan_addresses = (local.pod_cidrs.iter())
            .map(|cidr| IpNetwork::from(cidr.network()))
            .collect();
    }
    // Packets to addresses that no pod has must not leave by the default route.
    // Without --cluster-cidr each remote CIDR has a route of its own and no
    // range between them is the cluster's.
    let pods = |cidr: &&IpNetwork| desired.forwarding.contains(&Family::of(cidr.ip()));
    let unused = (local.pod_cidrs.iter()).chain(config.cluster_cidrs.iter().filter(pods));
    desired.routes = unused
        .map(|cidr| (RouteKey::unreachable(*cidr), Route::Unreachable))
        .collect();
    peers::add(&mut desired, basis, &local, problems);
    Network {
        desired,
        host_sources: local.host_sources,
        own_addresses: local.own_addresses,
        pod_cidrs: local.pod_cidrs,
        pod_mtu,
        underlay: local.underlay,
    }
}

fn ruleset(config: &Config, local: &Local, verdict: &Verdict<'_>) -> Ruleset {
    let given: BTreeSet<Family> = (config.cluster_cidrs.iter())
        .map(|cidr| Family::of(cidr.ip()))
        .collect();
    let union = (verdict.members.values())
        .flat_map(|member| &member.pod_cidrs)
        .filter(|cidr| !given.contains(&Family::of(cidr.ip())));
    let masquerade_nodes = match config.masquerade_nodes {
        MasqueradeNodes::On => true,
        MasqueradeNodes::Off => false,
        // With cross-subnet some nodes are behind a router, which has routes to
        // nodes but not to pods.
        MasqueradeNodes::Auto => config.backend != Backend::Direct,
    };
    let masquerade_ipv6 = match config.masquerade_ipv6 {
        MasqueradeIpv6::On => true,
        MasqueradeIpv6::Off => false,
        MasqueradeIpv6::Auto => !local.pod_cidrs.iter().any(is_global_unicast),
    };
    Ruleset {
        masquerade: match config.masquerade {
            Masquerade::Off => None,
            how => Some(how),
        },
        masquerade_ipv6,
        masquerade_nodes,
        vxlan: local.vtep_mac.map(|_| VxlanMatch {
            device: device_name(config),
            vni: config.vni,
            port: config.vxlan_port,
        }),
        local_cidrs: local.pod_cidrs.iter().copied().collect(),
        cluster_cidrs: config.cluster_cidrs.iter().chain(union).copied().collect(),
        node_addresses: verdict.node_addresses.clone(),
        underlay_addresses: if masquerade_nodes && masquerade_ipv6 {
            BTreeSet::new()
        } else {
            verdict.underlay_addresses.clone()
        },
        vxlan_sources: BTreeSet::new(),
        pod_links: BTreeSet::new(),
    }
}

/// Whether it is a range of the IPv6 internet, 2000::/3 (RFC 4291, section 2.4).
/// Unique local addresses, fc00::/7, are not.
fn is_global_unicast(cidr: &IpNetwork) -> bool {
    match cidr.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000,
    }
}

fn device_name(config: &Config) -> String {
    format!("tweed.{}", config.vni)
}
