//! Which endpoints of a Service port are used: topology (KEP-3015), endpoints that are
//! about to end (KEP-1669), and those of this node.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use tweed_core::family::Family;

use super::desired::Endpoint;
use super::slice::{Entry, NodeHint, Slice};

/// The endpoints of one Service port in one family.
pub type Candidates<'a> = BTreeMap<Endpoint, &'a Entry>;

/// All endpoints of a port in slices. One that is there several times, because a pod has
/// the address of another one or because it moves from slice to slice, is as
/// the entry says that is least about to end.
pub fn candidates<'a>(
    slices: impl IntoIterator<Item = &'a Slice>,
    family: Family,
    name: &str,
    protocol: u8,
) -> Candidates<'a> {
    let mut all = Candidates::new();
    for slice in slices {
        let same = |port: &&super::slice::Port| &*port.name == name && port.protocol == protocol;
        for port in slice.ports.iter().filter(same) {
            let of_family = |one: &&Entry| Family::of(one.address) == family;
            for entry in slice.endpoints.iter().filter(of_family) {
                let endpoint = Endpoint {
                    address: entry.address,
                    port: port.port,
                };
                match all.entry(endpoint) {
                    MapEntry::Vacant(vacant) => {
                        vacant.insert(entry);
                    }
                    MapEntry::Occupied(mut known) if prevails(entry, known.get()) => {
                        known.insert(entry);
                    }
                    MapEntry::Occupied(_) => {}
                }
            }
        }
    }
    all
}

/// Whether what one entry says of an endpoint counts more than what another one does.
fn prevails(one: &Entry, other: &Entry) -> bool {
    let rank = |entry: &Entry| (!entry.terminating, entry.ready, entry.serving, entry.local);
    rank(one) > rank(other)
}

/// What is used of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// For the traffic policy `Cluster`, in ascending order. Empty only if there are no
    /// usable endpoints anywhere.
    pub cluster: Vec<Endpoint>,
    /// For the traffic policy `Local`, in ascending order.
    pub local: Vec<Endpoint>,
}

impl Choice {
    /// Whether an endpoint is used at all.
    pub fn has(&self, endpoint: &Endpoint) -> bool {
        let mut groups = [&self.cluster, &self.local].into_iter();
        groups.any(|group| group.binary_search(endpoint).is_ok())
    }
}

/// Chooses for a node in this zone; an empty name is none.
pub fn choose(candidates: &Candidates<'_>, zone: &str) -> Choice {
    let select = |accept: &dyn Fn(&Entry) -> bool| {
        let accepted = candidates.iter().filter(|(_, entry)| accept(entry));
        accepted
            .map(|(endpoint, _)| *endpoint)
            .collect::<Vec<Endpoint>>()
    };
    let or_ending = |ready: Vec<Endpoint>, scope: &dyn Fn(&Entry) -> bool| match ready.is_empty() {
        true => select(&|entry| entry.serving && entry.terminating && scope(entry)),
        false => ready,
    };
    let preference = Preference::of(candidates, zone);
    let near = select(&|entry| entry.ready && preference.accepts(entry, zone));
    let local = select(&|entry| entry.ready && entry.local);
    Choice {
        cluster: or_ending(near, &|_| true),
        local: or_ending(local, &|entry| entry.local),
    }
}

/// By which hints ready endpoints are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preference {
    SameNode,
    SameZone,
    None,
}

impl Preference {
    /// Hints count only if every ready endpoint has one, and one is for us: otherwise the
    /// controller that sets them is not done yet.
    fn of(candidates: &Candidates<'_>, zone: &str) -> Self {
        let ready = || candidates.values().filter(|entry| entry.ready);
        let hinted = ready().all(|entry| entry.node_hint != NodeHint::None);
        if hinted && ready().any(|entry| Self::SameNode.accepts(entry, zone)) {
            return Self::SameNode;
        }
        let hinted = ready().all(|entry| entry.zones.is_some());
        if hinted && ready().any(|entry| Self::SameZone.accepts(entry, zone)) {
            return Self::SameZone;
        }
        Self::None
    }

    fn accepts(self, entry: &Entry, zone: &str) -> bool {
        match self {
            Self::SameNode => entry.node_hint == NodeHint::Own,
            Self::SameZone => {
                let zones = entry.zones.as_deref().unwrap_or_default();
                !zone.is_empty() && zones.iter().any(|one| **one == *zone)
            }
            Self::None => true,
        }
    }
}
