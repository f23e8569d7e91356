//! What the tables say of a flow, as the rules look it up: the steps of
//! [`super::super::table::desired`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_core::family::Family;

use crate::services::model::surroundings::Surroundings;
use crate::services::table::desired::{
    Desired, Endpoint, Frontend, Frontends, Holds, Masquerade, NodePort, Number, SCOPES, Span,
    Target, Tracked,
};

pub use crate::addresses::within;

/// Who begins a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A pod of the cluster.
    Pod,
    /// This node.
    Node,
    /// Anybody else.
    Outside,
}

/// What becomes of a flow to a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is sent to an endpoint.
    Sent {
        /// The group that the endpoint is one of.
        group: Number,
        /// Whether it is masqueraded, whichever endpoint it gets.
        masquerade: bool,
    },
    /// It is rejected: there is no endpoint anywhere.
    Rejected,
    /// It is dropped: the traffic policy is `Local`, and all endpoints are on other nodes.
    NoLocalEndpoint,
    /// It is dropped: the source may not use the frontend.
    SourceNotAllowed,
}

/// What becomes of a flow to a destination that no Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutService {
    /// It is rejected.
    Rejected,
    /// It is dropped.
    Dropped,
    /// It is nothing of Services, and left as it is.
    Untouched,
}

fn contains(span: &Span, ip: IpAddr) -> bool {
    Family::of(span.first) == Family::of(ip) && span.first <= ip && ip <= span.last
}

/// Whether node ports are at an address; `is_local` says whether this machine has it.
pub fn has_node_ports(desired: &Desired, address: IpAddr, is_local: bool) -> bool {
    is_local
        && within(&desired.node_port_networks, address)
        && !desired.node_port_exceptions.contains(&address)
}

/// The frontend that a flow meets.
pub fn frontend(desired: &Desired, key: Frontend, is_local: bool) -> Option<Tracked> {
    let node_port = NodePort {
        family: Family::of(key.address),
        protocol: key.protocol,
        port: key.port,
    };
    if desired.addresses.targets.contains_key(&key) {
        return Some(Tracked::Address(key));
    }
    let is_node_port = has_node_ports(desired, key.address, is_local)
        && desired.node_ports.targets.contains_key(&node_port);
    is_node_port.then_some(Tracked::NodePort(node_port))
}

/// What becomes of a flow to a frontend; none if there is no such frontend. Without a
/// source it is one that may use the frontend.
pub fn way(desired: &Desired, at: Tracked, origin: Origin, source: Option<IpAddr>) -> Option<Way> {
    let (target, masquerade) = match at {
        Tracked::Address(key) => {
            let found = look_up(&desired.addresses, &key, origin)?;
            let limit = desired.limits.get(&key).copied();
            if limit.is_some_and(|limit| !passes(desired, limit, origin, source)) {
                return Some(Way::SourceNotAllowed);
            }
            found
        }
        Tracked::NodePort(key) => look_up(&desired.node_ports, &key, origin)?,
    };
    Some(match target {
        Target::Reject => Way::Rejected,
        Target::Drop => Way::NoLocalEndpoint,
        Target::Group(group, _) | Target::Affinity(group) => Way::Sent {
            group,
            masquerade: match masquerade {
                None => origin != Origin::Pod,
                Some(Masquerade::All) => true,
                Some(Masquerade::OwnNode) => origin == Origin::Node,
            },
        },
    })
}

/// Why a flow is masqueraded to an endpoint, whatever its frontend says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The client is the endpoint.
    Hairpin,
    /// The client is a pod of another node, and the endpoint is not on this one: the answer
    /// has to come back by this node.
    PassingThrough,
}

/// Whether and why a flow from `source` is masqueraded to an endpoint, whatever its
/// frontend says.
pub fn masqueraded_to(
    desired: &Desired,
    surroundings: &Surroundings,
    origin: Origin,
    source: IpAddr,
    endpoint: IpAddr,
) -> Option<Because> {
    if source == endpoint && desired.hairpin.contains(&source) {
        return Some(Because::Hairpin);
    }
    let is_own_pod = |ip| surroundings.is_own_pod(ip);
    // What is sent to an address of this machine is not sent on.
    let is_own = |ip| is_own_pod(ip) || surroundings.own.addresses.contains(&ip);
    let passes_through = origin == Origin::Pod && !is_own_pod(source) && !is_own(endpoint);
    passes_through.then_some(Because::PassingThrough)
}

fn look_up<K: Ord>(
    frontends: &Frontends<K>,
    key: &K,
    origin: Origin,
) -> Option<(Target, Option<Masquerade>)> {
    let outside = frontends.outside.get(key);
    let outside = outside.filter(|_| origin == Origin::Outside);
    let target = outside.or_else(|| frontends.targets.get(key))?;
    Some((*target, frontends.masquerade.get(key).copied()))
}

fn passes(desired: &Desired, limit: Number, origin: Origin, source: Option<IpAddr>) -> bool {
    match (origin, source) {
        (Origin::Node, _) => desired.open_to_node.contains(&limit),
        (_, Some(source)) => allowed(desired, limit).any(|span| contains(span, source)),
        (_, None) => true,
    }
}

/// The sources that pass a limit.
pub fn allowed(desired: &Desired, limit: Number) -> impl Iterator<Item = &Span> {
    let spans = desired.allowed.iter();
    let spans = spans.filter(move |(of, _)| *of == limit);
    spans.map(|(_, span)| span)
}

/// What becomes of a flow without a frontend; `is_local` says whether this machine has the
/// address.
pub fn without(desired: &Desired, to: IpAddr, is_local: bool) -> WithoutService {
    let is_dropped = within(&desired.service_networks, to) && !desired.foreign.contains(&to);
    if desired.cluster_ips.contains(&to) {
        WithoutService::Rejected
    } else if is_dropped && !is_local {
        WithoutService::Dropped
    } else {
        WithoutService::Untouched
    }
}

/// How many endpoints are drawn from a group.
pub fn size(desired: &Desired, group: Number) -> usize {
    let Some(shape) = desired.groups.get(&group) else {
        return 0;
    };
    match shape.holds {
        Holds::Endpoints | Holds::Members => shape.slots.into(),
        Holds::Parts => {
            let parts = (0..shape.slots).filter_map(|index| desired.parts.get(&(group, index)));
            parts.map(|part| usize::from(part.slots)).sum()
        }
    }
}

/// The endpoints that are drawn from a group.
pub fn endpoints(desired: &Desired, group: Number) -> BTreeSet<Endpoint> {
    let part = part_of_group(desired, group);
    let slots = part.slots.into_values();
    slots.chain(part.endpoints.into_values()).collect()
}

/// What the tables have of a group.
fn part_of_group(desired: &Desired, group: Number) -> Desired {
    let mut part = Desired::default();
    copy_group(desired, group, &mut part);
    part
}

/// What the tables have of these frontends, everything that they lead to included. Spans
/// are left out: they may be shared by any number of others.
pub fn part(desired: &Desired, frontends: &[Tracked]) -> Desired {
    let mut part = Desired::default();
    for at in frontends {
        match at {
            Tracked::Address(key) => {
                copy(&desired.addresses, key, &mut part.addresses);
                copy_address(desired, key, &mut part);
            }
            Tracked::NodePort(key) => copy(&desired.node_ports, key, &mut part.node_ports),
        }
    }
    let (addresses, node_ports) = (&part.addresses, &part.node_ports);
    let targets = (addresses.targets.values())
        .chain(addresses.outside.values())
        .chain(node_ports.targets.values())
        .chain(node_ports.outside.values());
    let groups: BTreeSet<Number> = targets.filter_map(|target| target.group()).collect();
    for group in groups {
        copy_group(desired, group, &mut part);
    }
    part
}

fn copy<K: Ord + Copy>(from: &Frontends<K>, key: &K, to: &mut Frontends<K>) {
    to.targets
        .extend(from.targets.get(key).map(|one| (*key, *one)));
    to.outside
        .extend(from.outside.get(key).map(|one| (*key, *one)));
    to.masquerade
        .extend(from.masquerade.get(key).map(|one| (*key, *one)));
}

/// Copies what is known of the address of a frontend.
fn copy_address(desired: &Desired, key: &Frontend, part: &mut Desired) {
    if let Some(limit) = desired.limits.get(key) {
        part.limits.insert(*key, *limit);
        part.open_to_node.extend(desired.open_to_node.get(limit));
    }
    let address = &key.address;
    part.cluster_ips.extend(desired.cluster_ips.get(address));
    part.foreign.extend(desired.foreign.get(address));
    let exceptions = &desired.node_port_exceptions;
    part.node_port_exceptions.extend(exceptions.get(address));
}

fn copy_group(desired: &Desired, group: Number, part: &mut Desired) {
    let Some(shape) = desired.groups.get(&group) else {
        return;
    };
    part.groups.insert(group, *shape);
    let timeout = desired.affinities.get(&group);
    part.affinities
        .extend(timeout.map(|timeout| (group, *timeout)));
    for key in (0..shape.slots).map(|index| (group, index)) {
        match shape.holds {
            Holds::Endpoints => {
                if let Some(endpoint) = desired.slots.get(&key) {
                    part.slots.insert(key, *endpoint);
                    copy_hairpin(desired, endpoint, part);
                }
            }
            Holds::Members => {
                if let Some(number) = desired.member_slots.get(&key) {
                    part.member_slots.insert(key, *number);
                    copy_member(desired, *number, part);
                }
            }
            Holds::Parts => {
                if let Some(other) = desired.parts.get(&key) {
                    part.parts.insert(key, *other);
                    copy_group(desired, other.group, part);
                }
            }
        }
    }
}

/// Copies what is known of the number of an endpoint.
fn copy_member(desired: &Desired, number: Number, part: &mut Desired) {
    for scope in SCOPES {
        let members = desired.members.get(scope).get(&number);
        part.members.get_mut(scope).extend(members);
    }
    if let Some(endpoint) = desired.endpoints.get(&number) {
        part.endpoints.insert(number, *endpoint);
        copy_hairpin(desired, endpoint, part);
    }
}

fn copy_hairpin(desired: &Desired, endpoint: &Endpoint, part: &mut Desired) {
    part.hairpin.extend(desired.hairpin.get(&endpoint.address));
}
