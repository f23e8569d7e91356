//! What the table has of a few frontends.

use std::collections::BTreeSet;

use super::desired::{Desired, Endpoint, Frontend, Frontends, Holds, Number, SCOPES, Tracked};

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
                    copy_endpoint(desired, endpoint, part);
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
        copy_endpoint(desired, endpoint, part);
    }
}

/// Copies what is known of an endpoint, whoever leads to it.
fn copy_endpoint(desired: &Desired, endpoint: &Endpoint, part: &mut Desired) {
    part.hairpin.extend(desired.hairpin.get(&endpoint.address));
    part.tcp_endpoints
        .extend(desired.tcp_endpoints.get(endpoint));
}

/// The group that flows to a frontend are sent to, from outside or not; none if they are
/// sent nowhere.
pub fn group(desired: &Desired, at: Tracked, is_outside: bool) -> Option<Number> {
    let (near, outside) = match at {
        Tracked::Address(key) => {
            let of = &desired.addresses;
            (of.targets.get(&key), of.outside.get(&key))
        }
        Tracked::NodePort(key) => {
            let of = &desired.node_ports;
            (of.targets.get(&key), of.outside.get(&key))
        }
    };
    outside.filter(|_| is_outside).or(near)?.group()
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
    let mut part = Desired::default();
    copy_group(desired, group, &mut part);
    let slots = part.slots.into_values();
    slots.chain(part.endpoints.into_values()).collect()
}
