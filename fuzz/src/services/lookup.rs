//! What the tables say of a flow, as the rules look it up: the steps of
//! [`tweed_planner::services::desired`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_planner::services::desired::{
    Desired, Endpoint, Frontend, Frontends, Holds, Masquerade, NodePort, Number, Span, Target,
    Tracked,
};
pub use tweed_planner::services::explain::{Origin, WithoutService};

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

fn contains(span: &Span, ip: IpAddr) -> bool {
    Family::of(span.first) == Family::of(ip) && span.first <= ip && ip <= span.last
}

/// Whether an address is in one of these.
pub fn within(spans: &BTreeSet<Span>, ip: IpAddr) -> bool {
    spans.iter().any(|span| contains(span, ip))
}

/// Whether node ports are at an address; `is_local` says whether this machine has it.
fn has_node_ports(desired: &Desired, address: IpAddr, is_local: bool) -> bool {
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

fn look_up<K: Ord>(
    frontends: &Frontends<K>,
    key: &K,
    origin: Origin,
) -> Option<(Target, Option<Masquerade>)> {
    let is_outside = origin == Origin::Outside;
    let outside = frontends.outside.get(key).filter(|_| is_outside);
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
fn allowed(desired: &Desired, limit: Number) -> impl Iterator<Item = &Span> {
    let of_limit = desired.allowed.iter().filter(move |(of, _)| *of == limit);
    of_limit.map(|(_, span)| span)
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

/// The endpoints that are drawn from a group.
pub fn endpoints(desired: &Desired, group: Number) -> BTreeSet<Endpoint> {
    let shape = desired.groups[&group];
    let keys = (0..shape.slots).map(|index| (group, index));
    keys.flat_map(|key| match shape.holds {
        Holds::Endpoints => BTreeSet::from([desired.slots[&key]]),
        Holds::Members => BTreeSet::from([desired.endpoints[&desired.member_slots[&key]]]),
        Holds::Parts => endpoints(desired, desired.parts[&key].group),
    })
    .collect()
}
