//! What networks that overlap cost, as counts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Keys, Owner, Search, WithoutNetworks};
use crate::addresses::FAMILIES;
use crate::policy::model::Model;
use crate::policy::model::local::PolicyKey;
use crate::policy::model::peer_sets;
use crate::policy::model::rules::{Atom, Peers, Rules};
use crate::policy::model::verdicts::DIRECTIONS;

/// The different sets of policies that apply to local pods, by the pods' namespace.
#[derive(Debug, Default)]
pub struct Combinations<'a>(BTreeMap<&'a str, BTreeSet<&'a BTreeSet<PolicyKey>>>);

impl<'a> Combinations<'a> {
    /// Those whose cost an owner bears.
    fn of(&self, owner: &Owner) -> BTreeSet<Keys<'a>> {
        // To a pod apply policies of its namespace and of the cluster, which does not bear
        // what the former cost.
        let is_counted =
            |key: &&PolicyKey| *owner != Owner::Cluster || Owner::of(key) == Owner::Cluster;
        let of_owner = self.0.iter().filter(|(namespace, _)| match owner {
            Owner::Cluster => true,
            Owner::Namespace(name) => name == *namespace,
        });
        of_owner
            .flat_map(|(_, applied)| applied)
            .map(|applied| applied.iter().filter(is_counted).collect())
            .collect()
    }
}

impl Model {
    /// Those of all local pods.
    pub(super) fn combinations(&self) -> Combinations<'_> {
        let mut combinations = Combinations::default();
        for local in self.locals.values() {
            if let Some(kind) = local.subject() {
                let of = combinations.0.entry(&*kind.namespace).or_default();
                of.insert(&local.applied);
            }
        }
        combinations
    }
}

impl Search<'_> {
    /// The sum of the numbers of lists in all identities, in the rules of policies that have
    /// networks.
    pub(super) fn cost_of_lists<'a>(&self, rules: impl IntoIterator<Item = &'a Rules>) -> usize {
        Lists::of(rules.into_iter()).cost(0, |_| 1, self.compiled)
    }

    /// What the profiles cost of the pods that an owner answers for, if of its own policies only
    /// those of `taken` have networks, beyond what they cost if none of these has; some number
    /// beyond `max` if it is more than that.
    pub(super) fn cost_of_profiles(
        &self,
        known: &WithoutNetworks,
        owner: &Owner,
        taken: &Keys<'_>,
        max: usize,
    ) -> usize {
        let others = |key: &PolicyKey| Owner::of(key) != *owner && !known.is_too_costly(key);
        let all = |key: &PolicyKey| taken.contains(key) || others(key);
        let mut sum = 0usize;
        for applied in self.combinations.of(owner) {
            if sum > max {
                break;
            }
            if applied.is_disjoint(taken) {
                continue;
            }
            let without = self.cost_of_ports(&applied, others);
            let with = self.cost_of_ports(&applied, all);
            sum = sum.saturating_add(with.saturating_sub(without));
        }
        sum
    }

    /// What the profiles of a pod that these policies apply to cost, if those have networks of
    /// which `networks` says so.
    fn cost_of_ports(&self, applied: &Keys<'_>, networks: impl Fn(&PolicyKey) -> bool) -> usize {
        let applied = || {
            applied
                .iter()
                .filter_map(|key| Some((*key, *self.policies.get(key)?)))
        };
        let each = DIRECTIONS.map(|direction| {
            let mut everybody = 0usize;
            let mut of_list: HashMap<&BTreeSet<Atom>, usize> = HashMap::new();
            for (key, rules) in applied() {
                for rule in rules.rules.get(direction).iter().flatten() {
                    let ports = rule.ports.count();
                    match rule.network_list() {
                        Some(atoms) if networks(key) => {
                            let sum = of_list.entry(atoms).or_default();
                            *sum = sum.saturating_add(ports);
                        }
                        None if rule.peers == Peers::All => {
                            everybody = everybody.saturating_add(ports);
                        }
                        Some(_) | None => {}
                    }
                }
            }
            if of_list.is_empty() {
                return 0;
            }
            let (atoms, ports): (Vec<_>, Vec<_>) = of_list.into_iter().unzip();
            Lists(atoms).cost(everybody, |at| ports[at], self.compiled)
        });
        each.into_iter().fold(0, usize::saturating_add)
    }
}

/// Different lists of peers with networks.
#[derive(Debug)]
struct Lists<'a>(Vec<&'a BTreeSet<Atom>>);

impl<'a> Lists<'a> {
    fn of(policies: impl Iterator<Item = &'a Rules>) -> Self {
        let lists: HashSet<&BTreeSet<Atom>> = policies.flat_map(Rules::network_lists).collect();
        Self(lists.into_iter().collect())
    }

    /// The sum over all different sets of lists that addresses are in: of each `everywhere`,
    /// and what each list in it weighs; 0 if it cannot be much.
    fn cost(&self, everywhere: usize, weight: impl Fn(usize) -> usize, on: &Model) -> usize {
        let total = (0..self.0.len())
            .map(&weight)
            .fold(everywhere, usize::saturating_add);
        let sets = u32::try_from(self.0.len())
            .ok()
            .and_then(|lists| 1usize.checked_shl(lists));
        let most = sets.map(|sets| sets.saturating_mul(total));
        if most.is_some_and(|most| most <= on.max_cost.cheap) {
            return 0;
        }
        let mut sum = everywhere;
        let mut known: HashSet<u128> = [0].into();
        for family in FAMILIES {
            let lists = self.0.iter().enumerate();
            let lists = lists.map(|(at, atoms)| (at, peer_sets::ranges(atoms, family)));
            let bounds = peer_sets::bounds(family, lists);
            let (mut within, mut weighs) = (0, everywhere);
            for place in bounds.chunk_by(|a, b| a.at == b.at) {
                for bound in place {
                    within = on.fingerprints.after(within, bound);
                    weighs = match bound.begins {
                        true => weighs.saturating_add(weight(bound.list)),
                        false => weighs.saturating_sub(weight(bound.list)),
                    };
                }
                if known.insert(within) {
                    sum = sum.saturating_add(weighs);
                }
            }
        }
        sum
    }
}
