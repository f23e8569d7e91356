//! What the profiles of the pods here cost.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Owner, refused};
use crate::policy::model::Model;
use crate::policy::model::class::Weight;
use crate::policy::model::index::Index;
use crate::policy::model::local::PolicyKey;
use crate::policy::model::verdicts::{DIRECTIONS, Direction, Number, Verdicts};

/// What policies of one owner say in one direction, as numbers of ranges of ports.
#[derive(Debug, Default)]
struct Ranges {
    everybody: usize,
    lists: HashMap<Number, usize>,
}

impl Model {
    /// Finds anew who is refused for the profiles of local pods, with the identities of now,
    /// and gives pods of those that are refused other rules.
    pub(in crate::policy::model) fn limit_profiles(&mut self, index: &Index, verdicts: &Verdicts) {
        let max = self.costs.max;
        let is_any_refused = !self.costs.refused_for_profiles.is_empty();
        if !is_any_refused && self.profiles_at_most() <= max.own.min(max.joint) {
            return;
        }
        let mut costs: BTreeMap<Owner, usize> = BTreeMap::new();
        for ((namespace, applied), addresses) in self.groups() {
            for owner in [Owner::Cluster, Owner::Namespace(namespace.to_owned())] {
                let cost = self.cost_of_profiles(applied, addresses, &owner);
                if cost > 0 {
                    let sum = costs.entry(owner).or_default();
                    *sum = sum.saturating_add(cost);
                }
            }
        }
        let lists = self.costs.lists.iter();
        for (owner, cost) in
            lists.filter(|(owner, _)| !self.costs.refused_for_lists.contains(owner))
        {
            *costs.entry(owner.clone()).or_default() += cost;
        }
        let now = refused(&costs, self.costs.max, |_| 0);
        if now == self.costs.refused_for_profiles {
            return;
        }
        self.costs.refused_for_profiles = now;
        // Lists stay looked up, so that none are to be released.
        let (_, others) = self.admit(&BTreeSet::new());
        for (address, local) in &self.locals {
            if !local.applied.is_disjoint(&others) {
                self.pending.locals.insert(*address);
            }
        }
        self.classify(index, verdicts);
        self.collect_problems(index);
    }

    /// What lists and profiles of all owners cost at most together, as a look at each pod shows:
    /// mostly that is little, and nobody is refused.
    fn profiles_at_most(&self) -> usize {
        let most = self.identities.most_in_a_list();
        let classes = self.locals.values().flat_map(|local| {
            DIRECTIONS
                .into_iter()
                .filter_map(|direction| local.classes.get(direction).as_ref())
        });
        let profiles = classes.fold(0, |sum: usize, class| {
            let Weight {
                everybody,
                listed,
                lists,
            } = class.weight;
            let identities = lists.saturating_mul(most).min(self.identities.len());
            sum.saturating_add(listed.saturating_mul(most))
                .saturating_add(everybody.saturating_mul(identities + 1))
                .saturating_add(identities)
        });
        let lists = self.costs.lists.values();
        lists.fold(profiles, |sum, cost| sum.saturating_add(*cost))
    }

    /// How many local addresses have pods of a namespace to which the same policies apply.
    fn groups(&self) -> HashMap<(&str, &BTreeSet<PolicyKey>), usize> {
        let mut groups = HashMap::new();
        for local in self.locals.values() {
            if let Some(kind) = local.subject() {
                let group = (&*kind.namespace, &local.applied);
                *groups.entry(group).or_default() += 1;
            }
        }
        groups
    }

    /// The ranges of ports in all profiles for an owner's policies of those that apply to pods
    /// with so many addresses, and the pairs of these and identities in their lists.
    fn cost_of_profiles(
        &self,
        applied: &BTreeSet<PolicyKey>,
        addresses: usize,
        owner: &Owner,
    ) -> usize {
        let each = DIRECTIONS.map(|direction| {
            let own = applied.iter().filter(|key| owner.owns(key));
            let ranges = self.ranges(own, direction);
            let having = self.identities.having(ranges.lists.keys().copied());
            let pairs = having.min(self.identities.len());
            let sum = self.ranges_at_most(&ranges, pairs);
            let sum = if sum > self.costs.max.own {
                self.ranges_in_all(&ranges)
            } else {
                sum
            };
            sum.saturating_add(pairs.saturating_mul(addresses))
        });
        each.into_iter().fold(0, usize::saturating_add)
    }

    fn ranges<'a>(
        &self,
        policies: impl Iterator<Item = &'a PolicyKey>,
        direction: Direction,
    ) -> Ranges {
        let mut ranges = Ranges::default();
        for key in policies {
            let Some(one) = self.in_force.get(key) else {
                continue;
            };
            for (rule, peers) in one.rules_with_peers(direction) {
                let sum = match peers {
                    None => &mut ranges.everybody,
                    Some(peers) => ranges.lists.entry(peers).or_default(),
                };
                *sum = sum.saturating_add(rule.ports.count());
            }
        }
        ranges
    }

    /// A bound of [`Model::ranges_in_all`] that takes no look at the identities, of which so
    /// many are in any of the lists.
    fn ranges_at_most(&self, ranges: &Ranges, identities: usize) -> usize {
        let of_lists = ranges.lists.iter();
        let by_list = of_lists.fold(0, |sum: usize, (list, count)| {
            let identities = self.identities.having([*list]);
            sum.saturating_add(identities.saturating_mul(*count))
        });
        let lists = u32::try_from(ranges.lists.len()).ok();
        let combinations = lists.and_then(|lists| 1usize.checked_shl(lists));
        let different = combinations.map_or(identities, |most| most.min(identities));
        let all: usize = ranges.lists.values().sum();
        let by_combination = different.saturating_mul(all);
        let everybody = ranges.everybody.saturating_mul(different + 1);
        by_list.min(by_combination).saturating_add(everybody)
    }

    /// The ranges of ports in the profiles for all different combinations of lists, or so many
    /// that they are too many.
    fn ranges_in_all(&self, ranges: &Ranges) -> usize {
        let mut known = HashSet::new();
        let mut sum = ranges.everybody;
        for (_, identity) in self.identities.iter() {
            let sets = identity.content.sets.iter().copied();
            let lists: Vec<Number> = sets.filter(|one| ranges.lists.contains_key(one)).collect();
            if lists.is_empty() || known.contains(&lists) {
                continue;
            }
            let each = lists.iter().filter_map(|list| ranges.lists.get(list));
            sum = each.fold(sum.saturating_add(ranges.everybody), |sum, count| {
                sum.saturating_add(*count)
            });
            if sum > self.costs.max.own {
                break;
            }
            known.insert(lists);
        }
        sum
    }
}
