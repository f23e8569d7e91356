//! What is accepted of the Nodes and reported all the same, since a person should
//! look at it. None of it keeps a pod from being served.
//!
//! What always holds: a [`super::delta`] compares the problems of two plans of the
//! own Node and another one. So the text of a problem that several Nodes cause
//! either says the same whichever they are, or names them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};

use super::{claims::Verdict, cluster::Snapshot, desired::Underlay, local};
use crate::config::{Backend, Config};

/// How many Nodes or claims one problem names.
const MAX_NAMED: usize = 4;

/// Ranges that are assigned to nobody in the Internet: private use (RFC 1918,
/// RFC 4193), shared (RFC 6598), benchmarks (RFC 2544), reserved (RFC 1112).
const PRIVATE: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "240.0.0.0/4",
    "fc00::/7",
];

/// The problems of this plan that are only warnings; `family` is that of the underlay.
pub(super) fn problems(
    config: &Config,
    nodes: &Snapshot<'_>,
    family: Option<Family>,
    verdict: &Verdict<'_>,
) -> Vec<Problem> {
    let mut problems = shared_addresses(&verdict.shared);
    problems.extend(verdict.around.iter().map(|network| pods_inside(*network)));
    problems.extend(any_range(config, &nodes.own.name, verdict));
    problems.extend(family.and_then(|family| other_families(config, nodes, family)));
    problems
}

/// Where no flag says which family the underlay has, each agent takes the one that its
/// own Node lists first. Two that differ send VXLAN packets of different families, of
/// which the other's device receives none. Direct routes take the gateway of their own
/// family, whatever the Nodes list first.
fn other_families(config: &Config, nodes: &Snapshot<'_>, family: Family) -> Option<Problem> {
    if config.backend == Backend::Direct {
        return None;
    }
    let families = (nodes.others.iter())
        .filter_map(|node| Some((local::underlay_family(config, node)?, &node.name)));
    let mut others = families
        .filter(|(other, _)| *other != family)
        .map(|(other, name)| (other, format!("Node {name}")));
    let (other, first) = others.next()?;
    let others = named(std::iter::once(first).chain(others.map(|(_, name)| name)));
    let message = format!(
        "neither --underlay nor --underlay-family is given, so that each node takes the family \
         of its first InternalIP: {family} here, and {other} on {others}; VXLAN packets between \
         this node and those are lost"
    );
    let object = "--underlay-family";
    let kind = ProblemKind::UnderlayFamilyUnset;
    Some(Problem::new(kind, object, message))
}

/// That the kernel has no way from the own address to any of `peers`, which are some of
/// the other nodes' addresses.
pub(super) fn no_way(own: &Underlay, peers: &BTreeSet<IpAddr>) -> Problem {
    let peers = named(peers.iter().map(ToString::to_string));
    Problem::new(
        ProblemKind::NoWayToNodes,
        &own.name,
        format!(
            "the kernel has no route from this node's address {} to other nodes: it was asked for {peers}",
            own.address
        ),
    )
}

/// One problem for each Node that has an address of another.
fn shared_addresses(shared: &BTreeMap<IpAddr, Vec<&str>>) -> Vec<Problem> {
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (ip, nodes) in shared {
        for node in nodes {
            let others = nodes.iter().filter(|other| *other != node).copied();
            let others = named(others.map(|other| format!("Node {other}")));
            let text = format!("address {ip} of Node {node} is that of {others} too");
            texts.entry(node).or_default().push(text);
        }
    }
    texts
        .into_iter()
        .map(|(node, texts)| Problem::new(ProblemKind::NodeAddressShared, node, texts.join("; ")))
        .collect()
}

fn pods_inside(network: IpNetwork) -> Problem {
    Problem::new(
        ProblemKind::PodCidrOverlap,
        network.to_string(),
        format!(
            "pod CIDRs are inside {network}, a network that this machine is connected to: \
             machines in it whose addresses are in a pod CIDR are not reached from here"
        ),
    )
}

/// Where nothing says which ranges pods have, a Node can claim any range of the
/// Internet and so have the packets to it.
fn any_range(config: &Config, own: &str, verdict: &Verdict<'_>) -> Option<Problem> {
    let declared = |family| {
        let mut cluster = config.cluster_cidrs.iter();
        cluster.any(|cidr| Family::of(cidr.ip()) == family)
    };
    let ranges = (verdict.members.get(own)).map_or(&[][..], |own| &own.pod_cidrs);
    let texts: Vec<String> = (ranges.iter())
        .filter(|range| !declared(Family::of(range.ip())))
        .filter_map(|range| strangers(*range, verdict))
        .collect();
    (!texts.is_empty()).then(|| {
        let message = format!("--cluster-cidr is not given, and {}", texts.join("; "));
        Problem::new(ProblemKind::ClusterCidrUnset, "--cluster-cidr", message)
    })
}

/// What is wrong if not all Nodes' ranges are in the private range that `own`,
/// a range of the own Node, is in.
fn strangers(own: IpNetwork, verdict: &Verdict<'_>) -> Option<String> {
    let mut private = PRIVATE
        .iter()
        .filter_map(|text| text.parse::<IpNetwork>().ok());
    let Some(private) = private.find(|range| is_inside(*range, own)) else {
        return Some(format!("pod CIDR {own} is in no private range"));
    };
    let mut strangers = verdict.members.iter().flat_map(|(node, member)| {
        let ranges = member.pod_cidrs.iter();
        ranges
            .filter(|range| range.is_ipv4() == own.is_ipv4() && !is_inside(private, **range))
            .map(move |range| format!("{range} of Node {node}"))
    });
    let first = strangers.next()?;
    let outside = named(std::iter::once(first).chain(strangers));
    Some(format!(
        "these pod CIDRs are outside {private}, which the own one is in: {outside}"
    ))
}

fn is_inside(outer: IpNetwork, inner: IpNetwork) -> bool {
    outer.prefix() <= inner.prefix() && outer.contains(inner.network())
}

/// The first of `texts`, and the number of the others.
fn named(mut texts: impl Iterator<Item = String>) -> String {
    let mut said: Vec<String> = texts.by_ref().take(MAX_NAMED).collect();
    let more = texts.count();
    said.extend((more > 0).then(|| format!("{more} more")));
    said.join(", ")
}
