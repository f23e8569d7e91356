//! What the other Nodes add to a plan: for each of their pod CIDRs a route, and
//! for those behind the tunnel a neighbour and an FDB entry.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{family::Family, mac::Mac};

use super::desired::{Desired, Route, RouteKey};
use super::{basis::Basis, claims::Member, local::Local};
use crate::config::Backend;

/// How packets to one pod CIDR are sent.
#[derive(Clone)]
enum Way {
    Direct { gateway: IpAddr, link: u32 },
    Overlay { mac: Mac, address: IpAddr },
}

/// Adds every other Node to `desired`. Ranges that cannot be reached become
/// unreachable routes, and one problem for each Node.
///
/// A pod CIDR of a family that this node's own pods do not have is left out
/// without a problem: no pod here could use it, and a machine may have IPv6
/// switched off.
pub(super) fn add(
    desired: &mut Desired,
    basis: &Basis<'_>,
    local: &Local,
    problems: &mut Vec<Problem>,
) {
    let members = basis.verdict.members.iter();
    let others = members.filter(|(name, _)| **name != basis.own.name);
    for (name, member) in others {
        let tunnel = tunnel(local, member);
        if let Ok(Way::Overlay { address, .. }) = tunnel {
            let pairs = sources(desired, basis, member, address);
            desired.ruleset.vxlan_sources.extend(pairs);
        }
        let mut unreached = Vec::new();
        for cidr in &member.pod_cidrs {
            if !desired.forwarding.contains(&Family::of(cidr.ip())) {
                continue;
            }
            let direct = || direct(local, (name, member), basis, *cidr);
            let overlay = || {
                if basis.local_addresses.contains(&cidr.network()) {
                    // The kernel accepts no gateway that is its own address.
                    Err("its first address is one of this machine".to_owned())
                } else {
                    tunnel.clone()
                }
            };
            let way = match basis.config.backend {
                Backend::Vxlan => overlay(),
                Backend::Direct => direct(),
                Backend::CrossSubnet => direct().or_else(|_| overlay()),
            };
            match way {
                Ok(way) => add_range(desired, *cidr, way),
                Err(why) => {
                    unreached.push(format!("{cidr} ({why})"));
                    // The default route must not take packets to these pods.
                    desired
                        .routes
                        .insert(RouteKey::unreachable(*cidr), Route::Unreachable);
                }
            }
        }
        if !unreached.is_empty() {
            let listed = unreached.join(", ");
            let message = format!("pods of Node {name} are not reached: {listed}");
            problems.push(Problem::new(ProblemKind::NodeNotReached, *name, message));
        }
    }
}

/// The pairs of sources, outside and inside, that VXLAN packets of `member` may have.
///
/// Inside are its pods, and itself: the first address of its pod CIDR is that of its
/// VXLAN device, which is the source of what the node sends, and what all else is
/// masqueraded to. Only to a pod that has sent with its own source to another address
/// of the node comes the answer from there.
fn sources(
    desired: &Desired,
    basis: &Basis<'_>,
    member: &Member,
    address: IpAddr,
) -> Vec<(IpAddr, IpNetwork)> {
    let usable = &basis.verdict.node_addresses;
    let listed = (member.listed.iter())
        .filter(|ip| usable.contains(ip) && !basis.local_addresses.contains(ip))
        .filter(|ip| {
            let family = Family::of(**ip);
            desired.ruleset.pods_reach_nodes_as_themselves(family)
        })
        .map(|ip| IpNetwork::from(*ip));
    (member.pod_cidrs.iter().copied())
        .chain(listed)
        .filter(|inner| desired.forwarding.contains(&Family::of(inner.ip())))
        .map(|inner| (address, inner))
        .collect()
}

fn add_range(desired: &mut Desired, cidr: IpNetwork, way: Way) {
    let route = match way {
        Way::Direct { gateway, link } => Route::Direct { gateway, link },
        Way::Overlay { mac, address } => {
            let gateway = cidr.network();
            desired.neighbours.insert(gateway, mac);
            desired.fdb.insert(mac, address);
            Route::Overlay { gateway }
        }
    };
    desired.routes.insert(RouteKey::to(cidr), route);
}

/// The way through the VXLAN device to `member`, or why there is none.
fn tunnel(local: &Local, member: &Member) -> Result<Way, String> {
    let family = Family::of(local.underlay.address);
    let address = member.addresses.get(&family);
    match (local.vtep_mac, member.mac, address) {
        (Some(_), Some(mac), Some(address)) => Ok(Way::Overlay {
            mac,
            address: *address,
        }),
        (_, _, None) => Err(no_address(family)),
        (_, None, _) => Err("its VTEP MAC was refused".to_owned()),
        (None, _, _) => Err("this node has no tunnel".to_owned()),
    }
}

/// The way over the link that both share, to the Node's address of the same
/// family as the range, or why there is none: the kernel accepts no gateway that
/// is not on the link, and of several Nodes with the address only one can be
/// meant by it.
fn direct(
    local: &Local,
    (name, member): (&str, &Member),
    basis: &Basis<'_>,
    cidr: IpNetwork,
) -> Result<Way, String> {
    let family = Family::of(cidr.ip());
    let gateway = *(member.addresses.get(&family)).ok_or_else(|| no_address(family))?;
    let link =
        *(local.links.get(&family)).ok_or_else(|| format!("this node has no {family} address"))?;
    let sharing = basis.verdict.shared.get(&gateway);
    if let Some(oldest) = sharing.and_then(|nodes| nodes.first())
        && *oldest != name
    {
        return Err(format!(
            "{gateway} is that of Node {oldest} too, which is older"
        ));
    }
    if basis.host.on_link(link, gateway) {
        Ok(Way::Direct { gateway, link })
    } else {
        Err(format!("{gateway} is not on the same link"))
    }
}

fn no_address(family: Family) -> String {
    format!("it has no usable {family} address")
}
