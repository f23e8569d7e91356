//! One Node more, less or otherwise, without planning for all the others.
//!
//! The plan of a cluster is the own part and, for each other Node, what that
//! adds. A Node whose claims touch nobody else's adds the same in a cluster of
//! two, so the difference between two plans of *own Node and this one*, before
//! and after, is the difference between the whole plans. [`Standing`] knows
//! whether it touches others; where it does, or anything else is not as simple
//! as this, [`follow`] declines and the whole is planned.
//!
//! What always holds: a network that was followed is the one that
//! [`super::plan`] would make of the same Nodes. A property test compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::mac::Mac;

use crate::config::Config;
use crate::overlay::cluster::Cluster;
use crate::overlay::desired::{Desired, Route, RouteKey};
use crate::overlay::host::HostFacts;
use crate::overlay::syntax;
use crate::overlay::{Network, plan};
use tweed_core::object::node::{Node, VtepOverride};

/// What is no longer asked for, and what is now. A place that is in both gets
/// another value. Only what other Nodes add is in it: routes, neighbours, FDB
/// entries, and the sets of the ruleset; all else is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta {
    /// What was asked for before.
    pub removed: Desired,
    /// What is asked for now.
    pub added: Desired,
}

/// What all Nodes claim, as long as no claim was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Pod CIDRs by first address. None overlaps another.
    ranges: BTreeMap<IpAddr, IpNetwork>,
    /// Addresses, and how many Nodes list them.
    addresses: BTreeMap<IpAddr, usize>,
}

/// What one Node claims.
struct Claims {
    ranges: Vec<IpNetwork>,
    addresses: BTreeSet<IpAddr>,
}

impl Claims {
    /// What cannot be read claims nothing, and is refused by any plan.
    fn of(node: &Node) -> Self {
        let listed = node.addresses.iter();
        let vtep = node.vtep.accepted_sources.iter().flatten();
        Self {
            ranges: (node.pod_cidrs.iter())
                .filter_map(|text| syntax::pod_cidr(text).ok())
                .collect(),
            addresses: listed
                .filter_map(|entry| syntax::address(&entry.address).ok())
                .chain(node.vtep.ip)
                .chain(vtep.copied())
                .collect(),
        }
    }
}

impl Standing {
    /// What `nodes` claim.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut standing = Self::default();
        for node in nodes {
            standing.add(node);
        }
        standing
    }

    fn add(&mut self, node: &Node) {
        let claims = Claims::of(node);
        for range in claims.ranges {
            self.ranges.insert(range.network(), range);
        }
        for address in claims.addresses {
            *self.addresses.entry(address).or_default() += 1;
        }
    }

    fn remove(&mut self, node: &Node) {
        let claims = Claims::of(node);
        for range in claims.ranges {
            self.ranges.remove(&range.network());
        }
        for address in claims.addresses {
            if let Some(count) = self.addresses.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(&address);
                }
            }
        }
    }

    /// Whether nobody else claims what `node` does, or anything in it or around
    /// it. What a source says of a VTEP can be anybody's: never clear.
    fn is_clear_of(&self, node: &Node) -> bool {
        let claims = Claims::of(node);
        let in_range = |ip: IpAddr| {
            let last = self.ranges.range(..=ip).next_back();
            last.is_some_and(|(_, range)| range.contains(ip))
        };
        let is_free = |range: &IpNetwork| {
            let (first, last) = (range.network(), range.broadcast());
            !in_range(first)
                && self.ranges.range(first..=last).next().is_none()
                && self.addresses.range(first..=last).next().is_none()
        };
        node.vtep == VtepOverride::default()
            && claims.ranges.iter().all(is_free)
            && (claims.addresses.iter())
                .all(|ip| !in_range(*ip) && !self.addresses.contains_key(ip))
    }
}

/// Makes `network`, and with it `standing`, follow one Node of `cluster`'s
/// others from `before` to `after`; none where it was or is not there. Gives
/// what that changes, or none if the whole has to be planned: then nothing is
/// known of `standing`, and `network` is as it was.
pub fn follow(
    config: &Config,
    own: &Node,
    host: &HostFacts,
    standing: &mut Standing,
    network: &mut Network,
    (before, after): (Option<&Node>, Option<&Node>),
) -> Option<Delta> {
    if let Some(before) = before {
        standing.remove(before);
    }
    let both = before.into_iter().chain(after);
    if !both.into_iter().all(|node| standing.is_clear_of(node)) {
        return None;
    }
    let plan_with = |node: Option<&Node>| {
        let cluster = Cluster::new(own.clone(), node.cloned());
        plan(config, &cluster, host)
    };
    let (was, will) = (plan_with(before), plan_with(after));
    if was.contested || will.contested || was.problems != will.problems {
        return None;
    }
    let (mut was, mut will) = (was.network?.desired, will.network?.desired);
    let (before, now) = (take_facts(&mut was), take_facts(&mut will));
    let differs = was != will;
    let removed: Vec<Fact> = before
        .iter()
        .filter(|f| !now.contains(f))
        .cloned()
        .collect();
    let added: Vec<Fact> = now.into_iter().filter(|f| !before.contains(f)).collect();
    let desired = &mut network.desired;
    let is_free = |fact: &Fact| {
        !fact.is_taken_in(desired) || removed.iter().any(|removed| removed.is_in_place_of(fact))
    };
    if differs || !removed.iter().all(|fact| fact.is_in(desired)) || !added.iter().all(is_free) {
        return None;
    }
    let mut delta = Delta::default();
    for fact in removed {
        fact.remove_from(desired);
        fact.add_to(&mut delta.removed);
    }
    for fact in added {
        fact.clone().add_to(desired);
        fact.add_to(&mut delta.added);
    }
    if let Some(after) = after {
        standing.add(after);
    }
    Some(delta)
}

impl Delta {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another Node changes.
    pub fn extend(&mut self, other: Self) {
        for (all, more) in [
            (&mut self.removed, other.removed),
            (&mut self.added, other.added),
        ] {
            all.routes.extend(more.routes);
            all.neighbours.extend(more.neighbours);
            all.fdb.extend(more.fdb);
            let (all, more) = (&mut all.ruleset, more.ruleset);
            all.cluster_cidrs.extend(more.cluster_cidrs);
            all.node_addresses.extend(more.node_addresses);
            all.vxlan_sources.extend(more.vxlan_sources);
        }
    }
}

/// One thing that other Nodes add to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fact {
    Route(RouteKey, Route),
    Neighbour(IpAddr, Mac),
    Fdb(Mac, IpAddr),
    ClusterCidr(IpNetwork),
    NodeAddress(IpAddr),
    VxlanSource(IpAddr),
}

/// Takes all of them out of `desired`; the rest is the own part.
fn take_facts(desired: &mut Desired) -> Vec<Fact> {
    let Desired {
        routes,
        neighbours,
        fdb,
        ruleset,
        ..
    } = desired;
    let facts = std::mem::take(routes)
        .into_iter()
        .map(|(key, route)| Fact::Route(key, route));
    let neighbours = std::mem::take(neighbours).into_iter();
    let fdb = std::mem::take(fdb).into_iter();
    let cidrs = std::mem::take(&mut ruleset.cluster_cidrs).into_iter();
    let addresses = std::mem::take(&mut ruleset.node_addresses).into_iter();
    let sources = std::mem::take(&mut ruleset.vxlan_sources).into_iter();
    facts
        .chain(neighbours.map(|(ip, mac)| Fact::Neighbour(ip, mac)))
        .chain(fdb.map(|(mac, ip)| Fact::Fdb(mac, ip)))
        .chain(cidrs.map(Fact::ClusterCidr))
        .chain(addresses.map(Fact::NodeAddress))
        .chain(sources.map(Fact::VxlanSource))
        .collect()
}

impl Fact {
    fn is_in(&self, desired: &Desired) -> bool {
        match self {
            Self::Route(key, route) => desired.routes.get(key) == Some(route),
            Self::Neighbour(ip, mac) => desired.neighbours.get(ip) == Some(mac),
            Self::Fdb(mac, ip) => desired.fdb.get(mac) == Some(ip),
            Self::ClusterCidr(_) | Self::NodeAddress(_) | Self::VxlanSource(_) => {
                self.is_taken_in(desired)
            }
        }
    }

    /// Whether its place has any value.
    fn is_taken_in(&self, desired: &Desired) -> bool {
        match self {
            Self::Route(key, _) => desired.routes.contains_key(key),
            Self::Neighbour(ip, _) => desired.neighbours.contains_key(ip),
            Self::Fdb(mac, _) => desired.fdb.contains_key(mac),
            Self::ClusterCidr(cidr) => desired.ruleset.cluster_cidrs.contains(cidr),
            Self::NodeAddress(ip) => desired.ruleset.node_addresses.contains(ip),
            Self::VxlanSource(ip) => desired.ruleset.vxlan_sources.contains(ip),
        }
    }

    fn is_in_place_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Route(a, _), Self::Route(b, _)) => a == b,
            (Self::Neighbour(a, _), Self::Neighbour(b, _)) => a == b,
            (Self::Fdb(a, _), Self::Fdb(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    fn add_to(self, desired: &mut Desired) {
        let ruleset = &mut desired.ruleset;
        match self {
            Self::Route(key, route) => drop(desired.routes.insert(key, route)),
            Self::Neighbour(ip, mac) => drop(desired.neighbours.insert(ip, mac)),
            Self::Fdb(mac, ip) => drop(desired.fdb.insert(mac, ip)),
            Self::ClusterCidr(cidr) => drop(ruleset.cluster_cidrs.insert(cidr)),
            Self::NodeAddress(ip) => drop(ruleset.node_addresses.insert(ip)),
            Self::VxlanSource(ip) => drop(ruleset.vxlan_sources.insert(ip)),
        }
    }

    fn remove_from(&self, desired: &mut Desired) {
        let ruleset = &mut desired.ruleset;
        match self {
            Self::Route(key, _) => drop(desired.routes.remove(key)),
            Self::Neighbour(ip, _) => drop(desired.neighbours.remove(ip)),
            Self::Fdb(mac, _) => drop(desired.fdb.remove(mac)),
            Self::ClusterCidr(cidr) => drop(ruleset.cluster_cidrs.remove(cidr)),
            Self::NodeAddress(ip) => drop(ruleset.node_addresses.remove(ip)),
            Self::VxlanSource(ip) => drop(ruleset.vxlan_sources.remove(ip)),
        }
    }
}
