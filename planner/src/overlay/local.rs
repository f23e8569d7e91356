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

/// A node's own part, complete and without a refused claim.
pub(super) struct Local {
    pub pod_cidrs: Vec<IpNetwork>,
    pub pod_mtu: u32,
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
            let message = "the own Node has no pod CIDR";
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
            Some(address) => find_underlay(own, address, host, problems),
        };

        let vtep_mac = match config.backend {
            Backend::Direct => None,
            Backend::Vxlan | Backend::CrossSubnet => Some(member.mac?),
        };
        let (pod_cidrs, underlay) = (pod_cidrs?, underlay?);
        let interface = host.interfaces.get(&underlay.interface);
        if !interface.is_some_and(|interface| interface.up) {
            problems.push(underlay_down(&underlay));
        }
        let pod_mtu = pod_mtu(config, &pod_cidrs, &underlay, problems)?;

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
            pod_mtu,
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
        path: path(host, interface),
    })
}

/// The way to the other nodes for a node whose address is on `interface`.
fn path(host: &HostFacts, interface: &Interface) -> Path {
    host.usual_path().cloned().unwrap_or_else(|| Path {
        mtu: match interface.loopback {
            true => mtu::ETHERNET,
            false => interface.mtu,
        },
        link: interface.name.clone(),
    })
}

/// Whether `host` gives `underlay`, which was planned for this machine, the same
/// way to the other nodes.
pub(super) fn has_path_of(host: &HostFacts, underlay: &Underlay) -> bool {
    let interface = host.interfaces.get(&underlay.interface);
    interface.is_some_and(|interface| path(host, interface) == underlay.path)
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

/// MTU of pods and of the VXLAN device, in bytes; none if it is less than the
/// pods' families need.
fn pod_mtu(
    config: &Config,
    pod_cidrs: &[IpNetwork],
    underlay: &Underlay,
    problems: &mut Vec<Problem>,
) -> Option<u32> {
    let overhead = match config.backend {
        Backend::Direct => 0,
        Backend::Vxlan | Backend::CrossSubnet => mtu::vxlan_overhead(underlay.address),
    };
    let Path { mtu: carried, link } = &underlay.path;
    let room = carried.saturating_sub(overhead);
    let (mtu, cure) = match config.mtu {
        Mtu::Auto => (room, "raise the MTU of the interface"),
        Mtu::Fixed(mtu) => (mtu, "raise --mtu"),
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
            format!(
                "pods would have an MTU of {mtu}, and {family} needs {least}: {link} carries {carried}, and {overhead} go to the tunnel",
            ),
        );
        problems.push(problem.with_cure(cure));
        return None;
    }
    if mtu > room {
        let problem = Problem::new(
            ProblemKind::MtuTooBig,
            link,
            format!(
                "--mtu {mtu} is more than {link} carries: its MTU is {carried}, and {overhead} go to the tunnel",
            ),
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
