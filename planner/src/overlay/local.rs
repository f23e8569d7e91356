//! The own part of a plan: the pod CIDRs, the underlay's address and interface
//! on this machine, the MTU. If anything of it is missing or refused, the whole
//! plan holds ([`super::Plan::network`]).

use std::{collections::BTreeMap, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::{family::Family, mac::Mac, mtu, object::node::Node};

use super::host::{AddressState, HostFacts, Interface, Path};
use super::{basis::Basis, claims::Member, desired::Underlay, refusal::Claim, syntax};
use crate::config::{Backend, Config, Mtu};

/// A node's own part without a refused claim, complete but for the MTU.
pub(super) struct Local {
    pub pod_cidrs: Vec<IpNetwork>,
    pub underlay: Underlay,
    /// MAC of the VXLAN device, where the backend has one.
    pub vtep_mac: Option<Mac>,
    /// Interface of the own address, per family: direct routes lead over it.
    pub links: BTreeMap<Family, u32>,
    pub own_addresses: BTreeMap<IpAddr, u32>,
    pub host_sources: BTreeMap<Family, IpAddr>,
}

/// The family of the underlay. None if neither a flag nor an InternalIP of the
/// own Node decides it.
pub(super) fn underlay_family(config: &Config, own: &Node) -> Option<Family> {
    (config.underlay.map(|cidr| Family::of(cidr.ip())))
        .or(config.underlay_family)
        .or_else(|| internal_ips(own).next().map(Family::of))
}

fn internal_ips(node: &Node) -> impl Iterator<Item = IpAddr> {
    (node.addresses.iter())
        .filter(|entry| entry.kind == "InternalIP")
        .filter_map(|entry| syntax::address(&entry.address).ok())
}

impl Local {
    /// The own part, or none. Then `problems` has all reasons, not only the
    /// first.
    pub(super) fn find(basis: &Basis<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let Basis {
            config,
            own,
            family,
            verdict,
            host,
            ..
        } = *basis;
        let nothing = Member::default();
        let member = verdict.members.get(own.name.as_str()).unwrap_or(&nothing);
        let disputed = |kind: fn(&Claim) -> bool| {
            let mut refusals = verdict.refusals.iter().filter(|r| r.node == own.name);
            refusals.any(|r| r.effect(&own.name) != Effect::Warning && kind(&r.claim))
        };

        if own.pod_cidrs.is_empty() {
            let message = "the own Node has no pod CIDR, and other nodes drop packets to pods \
                that run here";
            problems.push(Problem::new(ProblemKind::NoPodCidr, &own.name, message));
        }
        let pod_cidrs = (!member.pod_cidrs.is_empty()
            && !disputed(|claim| matches!(claim, Claim::PodCidr(_))))
        .then(|| member.pod_cidrs.clone());

        let address = family.and_then(|family| member.addresses.get(&family).copied());
        let underlay = match address {
            None => {
                if !disputed(|claim| matches!(claim, Claim::Address(_))) {
                    problems.push(no_address(config, own, family));
                }
                None
            }
            Some(address) => find_underlay(config, own, address, host, problems),
        };

        let vtep_mac = match config.backend {
            Backend::Direct => None,
            Backend::Vxlan | Backend::CrossSubnet => Some(member.mac?),
        };
        let (pod_cidrs, underlay) = (pod_cidrs?, underlay?);
        let interface = host.interfaces.get(&underlay.interface);
        let is_up = interface.is_some_and(|interface| interface.up);
        if !is_up && leaves_by_own_link(config, host, &underlay) {
            problems.push(underlay_down(&underlay));
        }

        let mut own_addresses: BTreeMap<IpAddr, u32> = (member.addresses.values())
            .filter_map(|ip| Some((*ip, host.holder(*ip)?.0)))
            .collect();
        own_addresses.insert(underlay.address, underlay.interface);
        let links = (own_addresses.iter())
            .map(|(ip, link)| (Family::of(*ip), *link))
            .collect();
        let host_sources = (pod_cidrs.iter())
            .filter_map(|cidr| {
                let source = host_source(basis, *cidr, &underlay, vtep_mac.is_some())?;
                Some((Family::of(source), source))
            })
            .collect();
        Some(Self {
            pod_cidrs,
            underlay,
            vtep_mac,
            links,
            own_addresses,
            host_sources,
        })
    }
}

/// The own address on this machine; none if no packet can have it as its source.
fn find_underlay(
    config: &Config,
    own: &Node,
    address: IpAddr,
    host: &HostFacts,
    problems: &mut Vec<Problem>,
) -> Option<Underlay> {
    let Some((index, interface, state)) = host.holder(address) else {
        problems.push(Problem::new(
            ProblemKind::UnderlayAddressMissing,
            &own.name,
            format!("the own Node's address {address} is on no interface of this machine"),
        ));
        return None;
    };
    let unusable = |what| {
        Problem::new(
            ProblemKind::UnderlayAddressUnusable,
            &own.name,
            format!("address {address} on {} {what}", interface.name),
        )
    };
    match state {
        AddressState::Usable => {}
        AddressState::Tentative => {
            problems.push(unusable(
                "is not usable yet: duplicate address detection has not ended, or has failed",
            ));
            return None;
        }
        AddressState::Temporary => {
            let problem = unusable("is a temporary privacy address, which will not last");
            problems.push(problem.with_effect(Effect::Warning));
        }
    }
    Some(Underlay {
        address,
        interface: index,
        name: interface.name.clone(),
        path: path(config, host, (index, interface), address),
    })
}

/// The way to the other nodes for a node that has `address` on `interface`. While the
/// kernel has none, it is one that carries what pods had before, and else the interface
/// itself, unless that leads nowhere.
fn path(
    config: &Config,
    host: &HostFacts,
    (index, interface): (u32, &Interface),
    address: IpAddr,
) -> Option<Path> {
    if let Some(path) = host.usual_path() {
        return Some(path.clone());
    }
    let leads_nowhere = interface.loopback || interface.dummy && !host.has_network(index, address);
    let own = (!leads_nowhere).then_some(match address {
        IpAddr::V4(_) => interface.mtu,
        IpAddr::V6(_) => interface.mtu_v6,
    });
    let last_pod_mtu = host.last_pod_mtu.filter(|_| config.mtu == Mtu::Auto);
    let last = last_pod_mtu.map(|mtu| mtu.saturating_add(overhead(config, address)));
    // The least of those that are known.
    let mtu = last.into_iter().chain(own).min()?;
    let link = interface.name.clone();
    Some(Path { mtu, link })
}

/// Whether packets to other nodes leave by the interface of the own address. Those of the
/// tunnel take the way that the kernel has for them; direct routes lead over that
/// interface, of `cross-subnet` only as long as it is connected to a network.
fn leaves_by_own_link(config: &Config, host: &HostFacts, underlay: &Underlay) -> bool {
    let path = underlay.path.as_ref();
    let directly = match config.backend {
        Backend::Vxlan => false,
        Backend::Direct => true,
        Backend::CrossSubnet => host.has_network(underlay.interface, underlay.address),
    };
    directly || path.is_none_or(|path| path.link == underlay.name)
}

/// What the tunnel to other nodes takes of the underlay's MTU.
fn overhead(config: &Config, underlay: IpAddr) -> u32 {
    match config.backend {
        Backend::Direct => 0,
        Backend::Vxlan | Backend::CrossSubnet => mtu::vxlan_overhead(underlay),
    }
}

/// Whether `host` gives `underlay`, which was planned for this machine, the same
/// way to the other nodes.
pub(super) fn has_path_of(config: &Config, host: &HostFacts, underlay: &Underlay) -> bool {
    let index = underlay.interface;
    let interface = host.interfaces.get(&index);
    interface.is_some_and(|interface| {
        path(config, host, (index, interface), underlay.address) == underlay.path
    })
}

/// See [`super::Network::host_sources`].
fn host_source(
    basis: &Basis<'_>,
    cidr: IpNetwork,
    underlay: &Underlay,
    has_vxlan: bool,
) -> Option<IpAddr> {
    let family = Family::of(cidr.ip());
    if Family::of(underlay.address) == family {
        return Some(underlay.address);
    }
    internal_ips(basis.own)
        .filter(|ip| Family::of(*ip) == family)
        .find(|ip| matches!(basis.host.holder(*ip), Some((_, _, AddressState::Usable))))
        .or_else(|| has_vxlan.then(|| cidr.network()))
}

/// MTU of pods and of the VXLAN device, in bytes; none if nothing says what it is, or
/// if it is less than the pods' families need.
pub(super) fn pod_mtu(config: &Config, local: &Local, problems: &mut Vec<Problem>) -> Option<u32> {
    let Local {
        pod_cidrs,
        underlay,
        ..
    } = local;
    let overhead = overhead(config, underlay.address);
    let path = underlay.path.as_ref();
    if path.is_none() && config.mtu == Mtu::Auto {
        problems.push(mtu_unknown(underlay));
    }
    let room = path.map(|path| path.mtu.saturating_sub(overhead));
    let (mtu, cure) = match config.mtu {
        Mtu::Auto => (room?, "raise the MTU of the interface"),
        Mtu::Fixed(mtu) => (mtu, "raise --mtu"),
    };
    let link = path.map_or(&underlay.name, |path| &path.link);
    let carries = match path {
        Some(path) => format!(
            "{link} carries {}, and {overhead} go to the tunnel",
            path.mtu
        ),
        None => "what the way to other nodes carries is not known".to_owned(),
    };
    let (least, family) = if pod_cidrs.iter().any(IpNetwork::is_ipv6) {
        (mtu::IPV6_MIN, Family::V6)
    } else {
        (mtu::IPV4_MIN, Family::V4)
    };
    if mtu < least {
        let problem = Problem::new(
            ProblemKind::MtuTooSmall,
            link,
            format!("pods would have an MTU of {mtu}, and {family} needs {least}: {carries}",),
        );
        problems.push(problem.with_cure(cure));
        return None;
    }
    if let Some(room) = room.filter(|room| mtu > *room) {
        let problem = Problem::new(
            ProblemKind::MtuTooBig,
            link,
            format!("--mtu {mtu} is more than {room}, which is what is left for pods: {carries}",),
        );
        problems.push(problem.with_cure(format!("set --mtu to auto, or to {room} at most")));
    }
    Some(mtu)
}

fn no_address(config: &Config, own: &Node, family: Option<Family>) -> Problem {
    let (message, cure) = match (config.underlay, family) {
        (Some(underlay), _) => (
            format!("none of the own Node's addresses is inside --underlay {underlay}"),
            "add the address to the Node's status.addresses (kubelet --node-ip), or correct --underlay",
        ),
        (None, Some(family)) => (
            format!("the own Node has no usable {family} InternalIP"),
            "add one to the Node's status.addresses (kubelet --node-ip), or correct --underlay-family",
        ),
        (None, None) => (
            "the own Node has no usable InternalIP".to_owned(),
            "add one to the Node's status.addresses (kubelet --node-ip), or pick another address with --underlay",
        ),
    };
    Problem::new(ProblemKind::NoUnderlayAddress, &own.name, message).with_cure(cure)
}

fn mtu_unknown(underlay: &Underlay) -> Problem {
    Problem::new(
        ProblemKind::MtuUnknown,
        &underlay.name,
        format!(
            "the node's address {} is on {}, whose MTU says nothing of the way to other nodes, and the kernel has no route to any",
            underlay.address, underlay.name
        ),
    )
}

fn underlay_down(underlay: &Underlay) -> Problem {
    Problem::new(
        ProblemKind::UnderlayDown,
        &underlay.name,
        format!(
            "{}, which has the node's address {}, is down or has no carrier",
            underlay.name, underlay.address
        ),
    )
}
