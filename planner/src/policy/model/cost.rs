//! What policies cost on this node, and whose are refused because they cost too much.
//!
//! A tenant writes a few kilobytes, and the kernel would need a hundred thousand elements: an
//! identity stands for the lists of peers that an address is in, each pod can need a profile of
//! its own for each of them, and a profile has the ports of all these lists. So there is one
//! *cost* for each owner, in elements or what takes about as much: a namespace bears that of its
//! NetworkPolicies, and the cluster that of its ClusterNetworkPolicies. It has two parts:
//! - that of the *lists*, which follows from the policies alone: selectors, different lists, and
//!   the combinations of lists that addresses are in by their networks;
//! - that of the *profiles* of the pods here, which is counted once identities are known
//!   (`profiles.rs`).
//!
//! An owner that costs more than [`MaxCost::own`] is *refused*. While all others cost more than
//! [`MaxCost::joint`] together, the most costly namespace is refused too, but never the cluster.
//! The NetworkPolicies of a refused namespace allow nothing, so that the pods that they select
//! stay isolated; a refused ClusterNetworkPolicy accepts nothing, and denies everything in a
//! direction in which it denies or passes anything. Lists of an owner that is refused for them
//! are not looked up; those of one that is refused for its profiles are, so that it is known when
//! it costs less.
//!
//! An owner is refused with one plan. When it is not any more, its policies wait for their turn
//! (`queue.rs`), and count from it on. As long as some do not, nothing is allowed that all of them
//! would not allow, and nothing is refused that they refuse while none counts.

mod profiles;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::local::PolicyKey;
use super::peer_sets::{self, Fingerprints};
use super::rules::{Atom, has_networks};
use super::{Model, PeerNumbers};
use tweed_core::family::Family;

/// The cost of a different list with selectors, beside that of each selector in it: pods of
/// each kind can be in it.
const OF_LIST: usize = 50;
/// The cost of a selector of pods.
const OF_SELECTOR: usize = 5;

/// The most that policies may cost.
#[derive(Debug, Clone, Copy)]
pub struct MaxCost {
    /// Those of one owner.
    pub own: usize,
    /// Those of all owners together.
    pub joint: usize,
}

impl Default for MaxCost {
    fn default() -> Self {
        Self {
            own: 250_000,
            joint: 1_000_000,
        }
    }
}

/// Whose policies bear their cost together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All ClusterNetworkPolicies.
    Cluster,
    /// The NetworkPolicies of this namespace.
    Namespace(String),
}

impl Owner {
    /// Whose policy this is.
    pub fn of(key: &PolicyKey) -> Self {
        match key {
            PolicyKey::Network(namespace, _) => Self::Namespace(namespace.clone()),
            PolicyKey::Cluster(_) => Self::Cluster,
        }
    }

    /// Whether a policy is its own.
    fn owns(&self, key: &PolicyKey) -> bool {
        match (self, key) {
            (Self::Cluster, PolicyKey::Cluster(_)) => true,
            (Self::Namespace(one), PolicyKey::Network(namespace, _)) => one == namespace,
            _ => false,
        }
    }
}

/// What each owner's policies cost here, and who is refused.
#[derive(Debug, Default)]
pub struct Costs {
    pub max: MaxCost,
    /// The cost of lists.
    lists: BTreeMap<Owner, usize>,
    /// How much more the networks of all that are not refused for their lists overlap.
    across: usize,
    refused_for_lists: BTreeSet<Owner>,
    refused_for_profiles: BTreeSet<Owner>,
}

impl Costs {
    /// Nothing is counted yet.
    pub fn limited(max: MaxCost) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Whether the policies of an owner are refused.
    pub fn is_refused(&self, owner: &Owner) -> bool {
        self.refused_for_lists.contains(owner) || self.refused_for_profiles.contains(owner)
    }
}

/// Those that are refused if each has this cost. `joint` is what all cost together but some.
fn refused(
    costs: &BTreeMap<Owner, usize>,
    max: MaxCost,
    joint: impl Fn(&BTreeSet<Owner>) -> usize,
) -> BTreeSet<Owner> {
    let alone = costs.iter().filter(|(_, cost)| **cost > max.own);
    let mut refused: BTreeSet<Owner> = alone.map(|(owner, _)| owner.clone()).collect();
    let sum = |refused: &BTreeSet<Owner>| {
        let left = costs.iter().filter(|(owner, _)| !refused.contains(owner));
        left.fold(0, |sum: usize, (_, cost)| sum.saturating_add(*cost))
    };
    while sum(&refused).saturating_add(joint(&refused)) > max.joint {
        let left = costs
            .iter()
            .filter(|(owner, _)| **owner != Owner::Cluster && !refused.contains(owner));
        let Some((most, _)) = left.max_by_key(|(owner, cost)| (**cost, *owner)) else {
            break;
        };
        refused.insert(most.clone());
    }
    refused
}

impl Model {
    /// The policies in force whose rules do not count, as their owners are refused, or were.
    pub fn refused(&self) -> BTreeSet<PolicyKey> {
        let refused = self.in_force.iter().filter(|(_, one)| !one.counts);
        refused.map(|(key, _)| key.clone()).collect()
    }

    /// Finds anew who is refused for lists of peers, where these policies have come into force,
    /// or went, or have their turn. `networks` says that lists with networks are among them. What
    /// is to be released, and the policies that count now, or not any more.
    pub(super) fn acquire_lists(
        &mut self,
        changed: &BTreeSet<PolicyKey>,
        networks: bool,
    ) -> (Vec<PeerNumbers>, BTreeSet<PolicyKey>) {
        for owner in changed.iter().map(Owner::of).collect::<BTreeSet<_>>() {
            let cost = self.cost_of_lists(&owner);
            match cost {
                0 => drop(self.costs.lists.remove(&owner)),
                cost => drop(self.costs.lists.insert(owner, cost)),
            }
        }
        let was = &self.costs.refused_for_lists;
        let across = |refused: &BTreeSet<Owner>| {
            if networks || refused != was {
                self.overlap_across(refused)
            } else {
                self.costs.across
            }
        };
        let now = refused(&self.costs.lists, self.costs.max, across);
        self.costs.across = across(&now);
        self.costs.refused_for_lists = now;
        self.admit(changed)
    }

    /// Has all policies of refused owners not count, looks up the lists of those of others that
    /// have their turn, and has these count; the rest waits for it. What is to be released, and
    /// the policies that count now, or not any more.
    fn admit(&mut self, turn: &BTreeSet<PolicyKey>) -> (Vec<PeerNumbers>, BTreeSet<PolicyKey>) {
        let (mut released, mut others) = (Vec::new(), BTreeSet::new());
        self.queue.again.clear();
        for (key, one) in &mut self.in_force {
            let owner = Owner::of(key);
            if self.costs.refused_for_lists.contains(&owner) {
                released.extend(one.peers.take());
            } else if one.peers.is_none() && turn.contains(key) {
                one.acquire(&mut self.peer_sets);
            }
            let may_count = !self.costs.is_refused(&owner);
            let counts = may_count && (one.counts || turn.contains(key));
            if std::mem::replace(&mut one.counts, counts) != counts {
                others.insert(key.clone());
            }
            let lacks_lists = one.peers.is_none() && !self.costs.refused_for_lists.contains(&owner);
            if may_count && !counts || lacks_lists {
                self.queue.again.insert(key.clone());
            }
        }
        (released, others)
    }

    /// The cost of the lists of an owner's policies.
    fn cost_of_lists(&self, owner: &Owner) -> usize {
        let of_owner = self.in_force.iter().filter(|(key, _)| owner.owns(key));
        let lists: HashMap<u128, &[Atom]> = of_owner.flat_map(|(_, one)| one.lists()).collect();
        let by_labels = lists.values().map(|atoms| {
            let selectors = atoms.iter().take_while(|atom| atom.is_by_labels()).count();
            match selectors {
                0 => 0,
                count => OF_LIST + OF_SELECTOR * count,
            }
        });
        by_labels.sum::<usize>() + overlap(&self.fingerprints, lists.values().copied())
    }

    /// How much more the networks of all owners but some overlap than those of each do.
    fn overlap_across(&self, refused: &BTreeSet<Owner>) -> usize {
        let mut owned: BTreeMap<Owner, HashMap<u128, &[Atom]>> = BTreeMap::new();
        for (key, one) in &self.in_force {
            let owner = Owner::of(key);
            if one.rules.has_networks() && !refused.contains(&owner) {
                owned.entry(owner).or_default().extend(one.lists());
            }
        }
        let overlap =
            |lists: &HashMap<u128, &[Atom]>| overlap(&self.fingerprints, lists.values().copied());
        let each: usize = owned.values().map(overlap).sum();
        overlap(&owned.into_values().flatten().collect()).saturating_sub(each)
    }
}

/// The sum of the numbers of lists in all combinations of lists that addresses are in by their
/// networks. Those of one list are one combination, however many they are.
fn overlap<'a>(fingerprints: &Fingerprints, lists: impl Iterator<Item = &'a [Atom]>) -> usize {
    let with_networks: Vec<_> = lists.filter(|atoms| has_networks(atoms)).collect();
    let mut sum = 0usize;
    let mut known: HashSet<u128> = [0].into();
    for family in Family::BOTH {
        let numbered = with_networks.iter().enumerate();
        let ranges = numbered.map(|(at, atoms)| (at, peer_sets::ranges(atoms, family)));
        let bounds = peer_sets::bounds(family, ranges);
        let (mut within, mut count) = (0, 0);
        for place in bounds.chunk_by(|a, b| a.at == b.at) {
            for bound in place {
                within = fingerprints.after(within, bound);
                count = if bound.begins { count + 1 } else { count - 1 };
            }
            if known.insert(within) {
                sum = sum.saturating_add(count);
            }
        }
    }
    sum
}
