//! One Node added, removed or changed, without planning for all the others.
//!
//! The plan of a cluster is the own part and, for each other Node, what that
//! Node adds. A Node whose claims touch no other Node's adds the same in a
//! cluster of two, so the difference between two plans of *own Node and this
//! one*, before and after, is the difference between the whole plans.
//! [`ClaimIndex`] knows whether a Node's claims touch others, refused ones among
//! them; where they do, or anything else is not as simple as this,
//! [`of_one_node`] gives none and the whole is planned.
//!
//! While a claim of the own Node is refused that the plan of other Nodes depends
//! on, the plan holds, and nothing is followed.
//!
//! What always holds: a network that such a delta was applied to is the one
//! that [`super::plan()`] makes of the same Nodes. A property test compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_component::schema::Sets as _;
use tweed_core::{family::Family, mac::Mac, object::node::Node};

use super::desired::{Delta, Desired};
use super::{cluster::Snapshot, host::HostFacts, plan::plan, syntax, vtep};
use crate::config::Config;

/// The change that turns `old` into `new`; none if they also differ in their own part.
fn between(mut old: Desired, new: &Desired) -> Option<Delta> {
    let delta = old.change_to(new);
    old.apply(&delta);
    let is_all = old == *new && delta.ruleset.local_cidrs.is_empty();
    is_all.then_some(delta)
}

/// What all Nodes claim, whether it was accepted or refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimIndex {
    /// Pod CIDRs, by first address and prefix length, which may overlap, and how
    /// often each is claimed.
    ranges: BTreeMap<(IpAddr, u8), u32>,
    /// The prefix lengths of the ranges of each family, and how many claims have
    /// them: mostly one or two.
    prefixes: BTreeMap<(Family, u8), u32>,
    /// Addresses, and how many Nodes list them.
    addresses: BTreeMap<IpAddr, u32>,
    /// MACs of VXLAN devices, and how many Nodes have them.
    macs: BTreeMap<Mac, u32>,
}

/// What one Node claims.
struct Claims {
    ranges: Vec<IpNetwork>,
    addresses: BTreeSet<IpAddr>,
    mac: Mac,
}

impl Claims {
    /// What cannot be read claims nothing, and is refused by any plan.
    fn of(node: &Node) -> Self {
        let listed = node.addresses.iter();
        Self {
            ranges: (node.pod_cidrs.iter())
                .filter_map(|text| syntax::pod_cidr(text).ok())
                .collect(),
            addresses: listed
                .filter_map(|entry| syntax::address(&entry.address).ok())
                .collect(),
            mac: vtep::mac(&node.name),
        }
    }
}

impl ClaimIndex {
    /// What `nodes` claim.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut index = Self::default();
        for node in nodes {
            index.count(node, 1);
        }
        index
    }

    /// Counts the claims of a Node that has come (1) or gone (-1).
    fn count(&mut self, node: &Node, by: i32) {
        let claims = Claims::of(node);
        for range in claims.ranges {
            count(&mut self.ranges, (range.network(), range.prefix()), by);
            count(
                &mut self.prefixes,
                (Family::of(range.ip()), range.prefix()),
                by,
            );
        }
        for address in claims.addresses {
            count(&mut self.addresses, address, by);
        }
        count(&mut self.macs, claims.mac, by);
    }

    /// Whether `ip` is in a range that is claimed.
    fn has_range_around(&self, ip: IpAddr) -> bool {
        let family = Family::of(ip);
        let prefixes = self.prefixes.range((family, 0)..=(family, u8::MAX));
        let mut around = prefixes.filter_map(|((_, prefix), _)| IpNetwork::new(ip, *prefix).ok());
        around.any(|range| (self.ranges).contains_key(&(range.network(), range.prefix())))
    }

    /// Whether nobody else claims what `node` does, or anything in it or around
    /// it.
    fn is_clear_of(&self, node: &Node) -> bool {
        let claims = Claims::of(node);
        let is_free = |range: &IpNetwork| {
            let (first, last) = (range.network(), range.broadcast());
            !self.has_range_around(first)
                && (self.ranges.range((first, 0)..=(last, u8::MAX)))
                    .next()
                    .is_none()
                && self.addresses.range(first..=last).next().is_none()
        };
        !self.macs.contains_key(&claims.mac)
            && claims.ranges.iter().all(is_free)
            && (claims.addresses.iter())
                .all(|ip| !self.has_range_around(*ip) && !self.addresses.contains_key(ip))
    }
}

/// Counts a claim; one that nobody has any more is not kept.
fn count<K: Ord + Copy>(counts: &mut BTreeMap<K, u32>, key: K, by: i32) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add_signed(by);
    if *count == 0 {
        counts.remove(&key);
    }
}

/// What changes in the plan when one of the other Nodes changes from `before`
/// to `after`; none where it was or is not there. `claims` is what the Nodes
/// claim before the change, and afterwards what they claim after it. None if
/// the whole has to be planned: then `claims` is no longer valid.
pub fn of_one_node(
    config: &Config,
    own: &Node,
    host: &HostFacts,
    claims: &mut ClaimIndex,
    (before, after): (Option<&Node>, Option<&Node>),
) -> Option<Delta> {
    if let Some(before) = before {
        claims.count(before, -1);
    }
    let both = before.into_iter().chain(after);
    if !both.into_iter().all(|node| claims.is_clear_of(node)) {
        return None;
    }
    let plan_with = |node: Option<&Node>| {
        let others = node.into_iter().collect();
        plan(config, &Snapshot { own, others }, host)
    };
    let (was, will) = (plan_with(before), plan_with(after));
    if was.problems != will.problems {
        return None;
    }
    let delta = between(was.network?.desired, &will.network?.desired)?;
    if let Some(after) = after {
        claims.count(after, 1);
    }
    Some(delta)
}
