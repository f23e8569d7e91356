//! Which endpoints of a Service port are used: topology (KEP-3015), endpoints that are
//! about to end (KEP-1669), and those of this node.

use std::cmp::Reverse;
use std::collections::HashMap;

use tweed_core::family::Family;

use super::scope::{PerScope, SCOPES, Scope};
use super::slice::{Entry, NodeHint, Slice};
use super::value::Endpoint;

/// The endpoints of one Service port in one family, in ascending order, each once.
pub type Candidates<'a> = Vec<(Endpoint, &'a Entry)>;

/// The ports of slices by name and protocol, each with the slice whose endpoints have it: a
/// Service may have thousands of ports.
pub struct SlicePorts<'a>(HashMap<(&'a str, u8), Vec<(&'a Slice, u16)>>);

impl<'a> SlicePorts<'a> {
    /// Of all these slices.
    pub fn of(slices: impl IntoIterator<Item = &'a Slice>) -> Self {
        let mut ports: HashMap<_, Vec<_>> = HashMap::new();
        for slice in slices {
            for port in &slice.ports {
                let name = (&*port.name, port.protocol);
                ports.entry(name).or_default().push((slice, port.port));
            }
        }
        Self(ports)
    }

    /// How many endpoints a port may have, of both families.
    pub fn size(&self, name: &str, protocol: u8) -> usize {
        let slices = self.0.get(&(name, protocol)).into_iter().flatten();
        slices.map(|(slice, _)| slice.endpoints.len()).sum()
    }

    /// All endpoints of a port. One that is there several times, because a pod has the
    /// address of another one or because it moves from slice to slice, is as the entry
    /// says that is least about to end.
    pub fn candidates(&self, family: Family, name: &str, protocol: u8) -> Candidates<'a> {
        let mut all = Candidates::new();
        for (slice, port) in self.0.get(&(name, protocol)).into_iter().flatten() {
            let of_family = |one: &&Entry| Family::of(one.address) == family;
            let entries = slice.endpoints.iter().filter(of_family);
            all.extend(entries.map(|entry| {
                let endpoint = Endpoint {
                    address: entry.address,
                    port: *port,
                };
                (endpoint, entry)
            }));
        }
        all.sort_by_key(|(endpoint, entry)| (*endpoint, Reverse(rank(entry))));
        all.dedup_by_key(|(endpoint, _)| *endpoint);
        all
    }
}

/// How much counts what an entry says of an endpoint, beside other entries of the same.
fn rank(entry: &Entry) -> impl Ord + use<> {
    (!entry.terminating, entry.ready, entry.serving, entry.local)
}

/// What is used of the endpoints for each traffic policy, in ascending order. For `Cluster`
/// that is empty only if there are no usable endpoints anywhere.
pub type Choice = PerScope<Vec<Endpoint>>;

/// Whether an endpoint is used at all.
pub fn is_used(choice: &Choice, endpoint: &Endpoint) -> bool {
    let mut scopes = SCOPES.into_iter();
    scopes.any(|scope| choice.get(scope).binary_search(endpoint).is_ok())
}

/// Chooses for a node in this zone; an empty name is none.
pub fn choose(candidates: &[(Endpoint, &Entry)], zone: &str) -> Choice {
    let criteria = Criteria::of(candidates, zone);
    let select = |scope| {
        let all = candidates.iter();
        let used = all.filter(|(_, entry)| criteria.check(entry, scope).is_ok());
        used.map(|(endpoint, _)| *endpoint).collect()
    };
    Choice {
        cluster: select(Scope::Cluster),
        local: select(Scope::Local),
    }
}

/// What the slices say of the endpoints that are ready.
fn ready<'a>(candidates: &[(Endpoint, &'a Entry)]) -> impl Iterator<Item = &'a Entry> {
    let entries = candidates.iter().map(|(_, entry)| *entry);
    entries.filter(|entry| entry.ready)
}

/// Why an endpoint is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// It is neither ready, nor serving and about to end.
    NotReady,
    /// It is about to end, and others are ready.
    Ending,
    /// It is on another node.
    NotLocal,
    /// Hints give it to other nodes.
    OtherNode,
    /// Hints give it to other zones.
    OtherZone,
}

/// By what all endpoints of a Service port are chosen.
pub struct Criteria<'a> {
    zone: &'a str,
    preference: Preference,
    /// Whether any endpoint is ready.
    any_ready: bool,
    /// Whether one of this node is.
    any_local_ready: bool,
}

impl<'a> Criteria<'a> {
    /// Those for a node in this zone; an empty name is none.
    pub fn of(candidates: &[(Endpoint, &Entry)], zone: &'a str) -> Self {
        let ready = || ready(candidates);
        Self {
            zone,
            preference: Preference::of(candidates, zone),
            any_ready: ready().next().is_some(),
            any_local_ready: ready().any(|entry| entry.local),
        }
    }

    /// Whether an endpoint is used in a scope, and why not.
    pub fn check(&self, entry: &Entry, scope: Scope) -> Result<(), Unused> {
        if scope == Scope::Local && !entry.local {
            return Err(Unused::NotLocal);
        }
        let any_ready = match scope {
            Scope::Cluster => self.any_ready,
            Scope::Local => self.any_local_ready,
        };
        let is_ending = entry.serving && entry.terminating;
        match (any_ready, entry.ready) {
            (true, false) if is_ending => Err(Unused::Ending),
            (true, false) => Err(Unused::NotReady),
            (true, true) if scope == Scope::Local => Ok(()),
            (true, true) if self.preference.accepts(entry, self.zone) => Ok(()),
            (true, true) if self.preference == Preference::SameNode => Err(Unused::OtherNode),
            (true, true) => Err(Unused::OtherZone),
            (false, _) if is_ending => Ok(()),
            (false, _) => Err(Unused::NotReady),
        }
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
    fn of(candidates: &[(Endpoint, &Entry)], zone: &str) -> Self {
        let ready = || ready(candidates);
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
