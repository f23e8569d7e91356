//! The policies whose networks overlap too much to be told apart.
//!
//! An identity stands for the lists of peers that an address is in ([`Networks`]). The
//! bounds of each list *cut* the networks of the others, and each piece can need a profile
//! of its own: with n rules of which each has all addresses but one these are n² elements
//! for each pod, of an object whose size grows with n. What is in proportion to the objects
//! and the pods is not limited; the cuts beyond that are, on each node. Where there are too
//! many, the policies of the namespace that has the most of them match no network.
//!
//! [`Networks`]: crate::policy::peer_sets::Networks

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tweed_core::family::Family;

use super::Compiled;
use crate::addresses::{self, Range};
use crate::policy::desired::DIRECTIONS;
use crate::policy::local::PolicyKey;
use crate::policy::peer_sets;
use crate::policy::rules::{Atom, Rules};

/// Maximum number of cuts: of each network of each rule, by other rules, for each range of
/// ports of the rule and each address of a local pod that the policy selects.
#[derive(Debug, Clone, Copy)]
pub struct MaxCuts(pub usize);

impl Default for MaxCuts {
    fn default() -> Self {
        Self(1_000_000)
    }
}

/// One value for each family, by its number.
type PerFamily<T> = [T; 2];

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A policy with the rules that name networks.
#[derive(Debug)]
struct Candidate<'a> {
    key: &'a PolicyKey,
    /// The place of the list of each such rule, and how many ranges of ports it has.
    rules: Vec<(usize, usize)>,
    /// How many local addresses it selects.
    selects: PerFamily<usize>,
}

/// Whose policies share a fate: those of one namespace, or one ClusterNetworkPolicy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<'a> {
    Namespace(&'a str),
    Cluster(&'a str),
}

impl Compiled {
    /// The policies that are to match no network, of those that will be in force.
    pub(super) fn too_overlapping(
        &self,
        policies: &BTreeMap<&PolicyKey, &Rules>,
    ) -> BTreeSet<PolicyKey> {
        let mut selects: HashMap<&PolicyKey, PerFamily<usize>> = HashMap::new();
        for (address, local) in &self.locals {
            for key in &local.applied {
                selects.entry(key).or_default()[Family::of(*address) as usize] += 1;
            }
        }
        let mut lists = Lists::default();
        let candidates = policies.iter().map(|(key, rules)| Candidate {
            key,
            rules: lists.of(rules),
            selects: selects.get(key).copied().unwrap_or_default(),
        });
        let candidates = candidates.filter(|one| !one.rules.is_empty()).collect();
        worst(candidates, &lists.ranges, self.max_cuts.0)
    }
}

/// The different lists of peers with networks.
#[derive(Debug, Default)]
struct Lists<'a> {
    places: HashMap<&'a BTreeSet<Atom>, usize>,
    ranges: Vec<PerFamily<Vec<Range>>>,
}

impl<'a> Lists<'a> {
    /// The list of each rule with networks, and how many ranges of ports it has.
    fn of(&mut self, rules: &'a Rules) -> Vec<(usize, usize)> {
        let each = DIRECTIONS
            .into_iter()
            .flat_map(|direction| rules.rules.get(direction).iter().flatten());
        let mut found = Vec::new();
        for rule in each {
            let Some(atoms) = super::atoms(&rule.peers) else {
                continue;
            };
            if !atoms.iter().any(Atom::is_network) {
                continue;
            }
            let place = *self.places.entry(atoms).or_insert_with(|| {
                let of = FAMILIES.map(|family| peer_sets::ranges(atoms, family));
                self.ranges.push(of);
                self.ranges.len() - 1
            });
            let ports = rule.ports.fixed.ranges().count() + rule.ports.named.len();
            found.push((place, ports.max(1)));
        }
        found
    }
}

/// The policies without which the others have at most `max` cuts.
fn worst(
    mut candidates: Vec<Candidate<'_>>,
    lists: &[PerFamily<Vec<Range>>],
    max: usize,
) -> BTreeSet<PolicyKey> {
    let mut worst = BTreeSet::new();
    loop {
        let cuts = cuts(&candidates, lists);
        let of = |one: &Candidate<'_>| -> usize {
            let of_family = |family: usize| {
                let rules = one.rules.iter();
                let each = rules.map(|(list, ports)| cuts[*list][family].saturating_mul(*ports));
                each.fold(0, usize::saturating_add)
                    .saturating_mul(one.selects[family])
            };
            of_family(0).saturating_add(of_family(1))
        };
        let each: Vec<usize> = candidates.iter().map(of).collect();
        let total = each.iter().copied().fold(0, usize::saturating_add);
        if total <= max {
            return worst;
        }
        let mut of_owner: BTreeMap<Owner<'_>, usize> = BTreeMap::new();
        for (one, cuts) in candidates.iter().zip(&each) {
            let sum = of_owner.entry(owner(one.key)).or_default();
            *sum = sum.saturating_add(*cuts);
        }
        let mut ranked: Vec<usize> = (0..candidates.len()).filter(|at| each[*at] > 0).collect();
        ranked.sort_by_key(|at| {
            let key = candidates[*at].key;
            let owner = owner(key);
            let most = std::cmp::Reverse((of_owner.get(&owner).copied(), owner));
            (most, std::cmp::Reverse(each[*at]), key)
        });
        // Without the bounds of these the others have fewer cuts than they have now, so not
        // all that is too much is taken away at once.
        let enough = (total - max).div_ceil(2);
        let mut removed = 0usize;
        for at in ranked {
            if removed >= enough {
                break;
            }
            removed = removed.saturating_add(each[at]);
            worst.insert(candidates[at].key.clone());
        }
        candidates.retain(|one| !worst.contains(one.key));
    }
}

fn owner(key: &PolicyKey) -> Owner<'_> {
    match key {
        PolicyKey::Network(namespace, _) => Owner::Namespace(namespace),
        PolicyKey::Cluster(name) => Owner::Cluster(name),
    }
}

/// How often the networks of each list are cut by the bounds of all.
fn cuts(candidates: &[Candidate<'_>], lists: &[PerFamily<Vec<Range>>]) -> Vec<PerFamily<usize>> {
    let rules = candidates.iter().flat_map(|one| &one.rules);
    let used: BTreeSet<usize> = rules.map(|(list, _)| *list).collect();
    let mut cuts = vec![[0; 2]; lists.len()];
    for (at, family) in FAMILIES.into_iter().enumerate() {
        let highest = addresses::highest(family);
        let ranges = used.iter().flat_map(|list| &lists[*list][at]);
        let mut bounds: Vec<u128> = ranges
            .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
            .flatten()
            .filter(|bound| *bound <= highest)
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        // Bounds within the range: its first address is one, and the one after it is not.
        let within = |(first, last): &Range| {
            bounds.partition_point(|bound| bound <= last)
                - bounds.partition_point(|bound| bound <= first)
        };
        for list in &used {
            cuts[*list][at] = lists[*list][at].iter().map(within).sum();
        }
    }
    cuts
}
