//! What has to be written so that the kernel holds what is desired: pure, one
//! function for each kind of object.

use tweed_core::keyed::{Entry, compare};
use tweed_netlink::{fdb::Fdb, owned, route::Route};

use super::key::AddressKey;
use super::{change::Change, mirror::Mirror, resolved::Resolved};

/// The writes for everything but links, not yet in order.
pub fn diff(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let mut changes = addresses(mirror, desired);
    changes.extend(tables(mirror, desired));
    changes
}

/// The writes for neighbours, FDB and routes: what a packet looks up.
pub fn tables(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let mut changes = neighbours(mirror, desired);
    changes.extend(fdb(mirror, desired));
    changes.extend(routes(mirror, desired));
    changes
}

/// The writes for the VXLAN device's addresses.
pub fn addresses(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let actual = mirror.addresses.iter().filter(|(key, _)| {
        Some(key.device) == desired.device && owned::is_device_address(&key.network)
    });
    compare(actual, desired.addresses.iter().map(|key| (key, ())))
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveAddress(*key)),
            Entry::Second(key, ()) => Some(Change::AddAddress(*key)),
            Entry::Both(..) => None,
        })
        .collect()
}

fn neighbours(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let neighbours = mirror.neighbours.iter();
    let actual = neighbours.filter(|(key, _)| Some(key.device) == desired.device);
    compare(actual, &desired.neighbours)
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveNeighbour(*key)),
            Entry::Both(_, actual, mac) if actual == mac => None,
            Entry::Both(key, _, mac) | Entry::Second(key, mac) => Some(Change::SetNeighbour {
                key: *key,
                mac: *mac,
            }),
        })
        .collect()
}

fn fdb(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    let agrees = |entries: &[Fdb], remote| match entries {
        [one] => one.permanent && !one.more && one.destination == Some(remote),
        _ => false,
    };
    let fdb = mirror.fdb.iter();
    let actual = fdb.filter(|(key, _)| Some(key.device) == desired.device);
    compare(actual, &desired.fdb)
        .filter_map(|entry| match entry {
            Entry::First(key, _) => Some(Change::RemoveFdb(*key)),
            Entry::Both(_, entries, remote) if agrees(entries, *remote) => None,
            Entry::Both(key, _, remote) | Entry::Second(key, remote) => Some(Change::SetFdb {
                key: *key,
                remote: *remote,
            }),
        })
        .collect()
}

/// A route to a pod's link is not removed: DEL does that. Routes with the key of a pod's
/// are left to the plan for local pods.
fn routes(mirror: &Mirror, desired: &Resolved) -> Vec<Change> {
    compare(&mirror.routes, &desired.routes)
        .flat_map(|entry| match entry {
            Entry::First(key, _) if desired.kept.contains(key) => Vec::new(),
            Entry::First(_, routes) => routes
                .iter()
                .filter(|route| !mirror.leads_to_a_pod(route))
                .map(|route| Change::RemoveRoute(route.clone()))
                .collect(),
            Entry::Second(_, route) => one_route(&[], route),
            Entry::Both(_, routes, route) => one_route(routes, route),
        })
        .collect()
}

/// The writes that leave `desired` as tweed's only route with its key. One
/// route that differs is replaced: in IPv4 there is one at any moment, in IPv6 none for
/// a moment, and the old one again if the kernel refuses the new one. Of several, which
/// the kernel allows only when a person adds them so, all but the right one are removed;
/// without a right one the first is replaced. In IPv6 the others may be next hops of
/// somebody else, which the kernel shows with the protocol of the first.
pub fn one_route(actual: &[Route], desired: &Route) -> Vec<Change> {
    match actual {
        [] => vec![Change::AddRoute(desired.clone())],
        several if several.contains(desired) => {
            let others = several.iter().filter(|route| *route != desired);
            others.cloned().map(Change::RemoveRoute).collect()
        }
        [first, others @ ..] => {
            let replace = Change::ReplaceRoute {
                old: Box::new(first.clone()),
                new: desired.clone(),
            };
            let removals = others.iter().cloned().map(Change::RemoveRoute);
            removals.chain([replace]).collect()
        }
    }
}

/// Whether something that is desired is on the device with this index, which is to be
/// removed, because the kernel refused what replaces it.
pub fn is_needed(mirror: &Mirror, desired: &Resolved, device: u32) -> bool {
    let is_on = |routes: &[Route]| routes.iter().any(|route| route.out == Some(device));
    let mut routes = desired.routes.keys();
    let mut addresses = desired.addresses.iter();
    routes.any(|key| is_on(mirror.routes_with(key)))
        || addresses.any(|key| {
            let old = AddressKey { device, ..*key };
            mirror.addresses.contains_key(&old) && !mirror.addresses.contains_key(key)
        })
}

#[cfg(test)]
mod tests;
