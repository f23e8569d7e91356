//! What the agent finds of an earlier run; tests of the crate `nft` use this file too.

use std::collections::BTreeMap;

use tweed_core::family::Family;
use tweed_planner::services::desired::{Desired, Span, Tracked};
use tweed_planner::services::{KnownNumbers, KnownSlots};

/// What the kernel holds after this was written.
pub fn written(desired: &Desired) -> KnownNumbers {
    let addresses = desired.addresses.targets.iter();
    let by_address = addresses.map(|(key, target)| (Tracked::Address(*key), target));
    let node_ports = desired.node_ports.targets.iter();
    let by_node_port = node_ports.map(|(key, target)| (Tracked::NodePort(*key), target));
    let groups = by_address
        .chain(by_node_port)
        .filter_map(|(key, target)| Some((key, target.group()?)));
    let mut limits: BTreeMap<_, Vec<Span>> = BTreeMap::new();
    for (frontend, number) in &desired.limits {
        limits
            .entry((Family::of(frontend.address), *number))
            .or_default();
    }
    for (number, span) in &desired.allowed {
        let of = (Family::of(span.first), *number);
        limits.entry(of).or_default().push(*span);
    }
    let parts = desired.parts.iter().map(|(key, part)| (*key, part.group));
    KnownNumbers {
        groups: groups.collect(),
        endpoints: desired.endpoints.clone(),
        limits,
        slots: KnownSlots {
            endpoints: desired.slots.clone(),
            members: desired.member_slots.clone(),
            parts: parts.collect(),
        },
    }
}
