//! The policies whose networks are too many to be told apart.
//!
//! An identity stands for the lists of peers that an address is in
//! ([`Networks`](crate::policy::peer_sets::Networks)), and each pod can need a profile of its
//! own for each. With n rules of which each has all addresses but one these are n lists of n
//! numbers and, if each rule has a port of its own, n² ports, of an object whose size grows
//! with n. So this *cost* is limited on each node; what is in proportion to the objects is not.
//!
//! Each namespace bears what its own policies cost for its own pods, and loses the networks of
//! its most costly policies if that is too much. What namespaces cost together is limited besides:
//! the most costly one loses its networks first. ClusterNetworkPolicies are together like one
//! namespace, and lose nothing for what others cost.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tweed_core::family::Family;

use super::Compiled;
use crate::policy::desired::DIRECTIONS;
use crate::policy::local::PolicyKey;
use crate::policy::peer_sets::{self, Fingerprints};
use crate::policy::rules::{Atom, Peers, Rules};

/// The most that networks may cost.
#[derive(Debug, Clone, Copy)]
pub struct MaxCost {
    /// Of one namespace: numbers of lists in all identities, and ranges of ports in all
    /// profiles.
    pub own: usize,
    /// Of all together: numbers of lists in all identities.
    pub joint: usize,
}

impl Default for MaxCost {
    fn default() -> Self {
        Self {
            own: 500_000,
            joint: 2_000_000,
        }
    }
}

/// What costs at most this by a count of lists alone counts as nothing: then nobody has to look
/// at the ranges, which are many in a list from elsewhere.
const CHEAP: usize = 1_000;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Whose policies bear their cost together: those of a namespace, or all of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All ClusterNetworkPolicies.
    Cluster,
    /// The NetworkPolicies of this namespace.
    Namespace(String),
}

impl Owner {
    fn of(key: &PolicyKey) -> Self {
        match key {
            PolicyKey::Network(namespace, _) => Self::Namespace(namespace.clone()),
            PolicyKey::Cluster(_) => Self::Cluster,
        }
    }
}

/// The policies that match no network.
#[derive(Debug, Default)]
pub struct WithoutNetworks {
    /// For what each namespace costs.
    own: BTreeMap<Owner, BTreeSet<PolicyKey>>,
    /// For what they cost together.
    joint: BTreeSet<PolicyKey>,
}

impl WithoutNetworks {
    /// Whether a policy is one of them.
    pub fn has(&self, key: &PolicyKey) -> bool {
        self.joint.contains(key) || self.is_too_costly(key)
    }

    /// Whether it is one for what its own namespace costs.
    fn is_too_costly(&self, key: &PolicyKey) -> bool {
        let own = self.own.get(&Owner::of(key));
        own.is_some_and(|own| own.contains(key))
    }
}

/// The policies of a node by their keys, with their rules.
pub type Policies<'a> = BTreeMap<&'a PolicyKey, &'a Rules>;

impl Compiled {
    /// Finds the policies that are to match no network anew, of those that will be in force.
    /// `changed` are those that have become others, or apply to others; `lists` says that
    /// lists of peers with networks have changed.
    pub(super) fn find_without_networks(
        &self,
        known: &mut WithoutNetworks,
        policies: &Policies<'_>,
        changed: &BTreeSet<PolicyKey>,
        lists: bool,
    ) {
        let mut with_networks: BTreeMap<Owner, Policies<'_>> = BTreeMap::new();
        for (key, rules) in policies.iter().filter(|(_, rules)| rules.has_networks()) {
            let own = with_networks.entry(Owner::of(key)).or_default();
            own.insert(key, rules);
        }
        let combinations = self.combinations();
        let mut owners: BTreeSet<Owner> = changed.iter().map(Owner::of).collect();
        // They apply to pods of all namespaces.
        if owners.contains(&Owner::Cluster) {
            owners.extend(with_networks.keys().cloned());
        }
        let mut differs = false;
        for owner in owners {
            let own = with_networks.get(&owner);
            let without =
                own.map(|own| self.too_costly(known, policies, own, &combinations, &owner));
            let without = without.unwrap_or_default();
            let before = match without.is_empty() {
                true => known.own.remove(&owner),
                false => known.own.insert(owner, without.clone()),
            };
            differs |= before.unwrap_or_default() != without;
        }
        if lists || differs {
            known.joint = self.too_costly_together(known, policies);
        }
    }

    /// The different sets of policies that apply to local pods, by the pods' namespace.
    fn combinations(&self) -> BTreeMap<&str, BTreeSet<&BTreeSet<PolicyKey>>> {
        let mut combinations: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
        for local in self.locals.values() {
            if let Some(kind) = local.subject() {
                let of = combinations.entry(&*kind.namespace).or_default();
                of.insert(&local.applied);
            }
        }
        combinations
    }

    /// Those policies of an owner without whose networks the others cost no more than one
    /// owner's may.
    fn too_costly(
        &self,
        known: &WithoutNetworks,
        policies: &Policies<'_>,
        own: &Policies<'_>,
        combinations: &BTreeMap<&str, BTreeSet<&BTreeSet<PolicyKey>>>,
        owner: &Owner,
    ) -> BTreeSet<PolicyKey> {
        // To a pod apply policies of its namespace and of the cluster, which does not bear what
        // the former cost.
        let is_counted =
            |key: &&PolicyKey| *owner != Owner::Cluster || Owner::of(key) == Owner::Cluster;
        let of_owner = combinations.iter().filter(|(namespace, _)| match owner {
            Owner::Cluster => true,
            Owner::Namespace(name) => name == *namespace,
        });
        let counted: BTreeSet<BTreeSet<&PolicyKey>> = of_owner
            .flat_map(|(_, applied)| applied)
            .map(|applied| applied.iter().filter(is_counted).collect())
            .collect();
        let max = self.max_cost.own;
        let cost = |taken: &BTreeSet<&PolicyKey>| {
            let networks = |key: &PolicyKey| match own.contains_key(key) {
                true => taken.contains(key),
                false => !known.is_too_costly(key),
            };
            let lists = Lists::of(taken.iter().filter_map(|key| own.get(key).copied()));
            let mut sum = lists.cost(0, |_| 1, &self.fingerprints);
            for applied in &counted {
                if sum > max {
                    break;
                }
                sum = sum.saturating_add(self.cost_of_ports(policies, applied, networks));
            }
            sum
        };
        let all: BTreeSet<&PolicyKey> = own.keys().copied().collect();
        if cost(&all) <= max {
            return BTreeSet::new();
        }
        let alone = |rules| Lists::of([rules].into_iter()).cost(0, |_| 1, &self.fingerprints);
        let mut ranked: Vec<&PolicyKey> = own.keys().copied().collect();
        ranked.sort_by_cached_key(|key| (own.get(key).map(|rules| alone(rules)), *key));
        beyond(&ranked, |taken| cost(taken) <= max)
    }

    /// What the profiles of a pod that these policies apply to cost, if those have networks of
    /// which `networks` says so.
    fn cost_of_ports(
        &self,
        policies: &Policies<'_>,
        applied: &BTreeSet<&PolicyKey>,
        networks: impl Fn(&PolicyKey) -> bool,
    ) -> usize {
        let applied = || {
            applied
                .iter()
                .filter_map(|key| Some((*key, *policies.get(key)?)))
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
            Lists(atoms).cost(everybody, |at| ports[at], &self.fingerprints)
        });
        each.into_iter().fold(0, usize::saturating_add)
    }

    /// Those policies without whose networks all others cost no more than all may.
    fn too_costly_together(
        &self,
        known: &WithoutNetworks,
        policies: &Policies<'_>,
    ) -> BTreeSet<PolicyKey> {
        let is_left = |key: &PolicyKey| !known.is_too_costly(key);
        let left = policies.iter();
        let left = left.filter(|(key, rules)| rules.has_networks() && is_left(key));
        let left: Policies<'_> = left.map(|(key, rules)| (*key, *rules)).collect();
        let cost = |taken: &BTreeSet<&PolicyKey>| {
            let lists = Lists::of(taken.iter().filter_map(|key| left.get(key).copied()));
            lists.cost(0, |_| 1, &self.fingerprints)
        };
        let max = self.max_cost.joint;
        let all: BTreeSet<&PolicyKey> = left.keys().copied().collect();
        if cost(&all) <= max {
            return BTreeSet::new();
        }
        let mut owners: BTreeMap<Owner, BTreeSet<&PolicyKey>> = BTreeMap::new();
        for key in left.keys() {
            owners.entry(Owner::of(key)).or_default().insert(key);
        }
        // Those of the cluster come first.
        let rank = |owner: &Owner, keys: &BTreeSet<&PolicyKey>| match owner {
            Owner::Cluster => 0,
            Owner::Namespace(_) => cost(keys),
        };
        let costs: BTreeMap<&Owner, usize> = { owners.iter() }
            .map(|(owner, keys)| (owner, rank(owner, keys)))
            .collect();
        let mut ranked: Vec<&PolicyKey> = left.keys().copied().collect();
        ranked.sort_by_cached_key(|key| {
            let owner = Owner::of(key);
            (
                costs.get(&owner).copied(),
                owner,
                cost(&[*key].into()),
                *key,
            )
        });
        beyond(&ranked, |taken| cost(taken) <= max)
    }
}

/// What comes after as many of these as fit.
fn beyond(
    ranked: &[&PolicyKey],
    fit: impl Fn(&BTreeSet<&PolicyKey>) -> bool,
) -> BTreeSet<PolicyKey> {
    let (mut fits, mut too_many) = (0, ranked.len());
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        match fit(&ranked[..middle].iter().copied().collect()) {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    ranked[fits..].iter().map(|key| (*key).clone()).collect()
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
    /// and what each list in it weighs.
    fn cost(
        &self,
        everywhere: usize,
        weight: impl Fn(usize) -> usize,
        fingerprints: &Fingerprints,
    ) -> usize {
        let total = (0..self.0.len())
            .map(&weight)
            .fold(everywhere, usize::saturating_add);
        let sets = u32::try_from(self.0.len())
            .ok()
            .and_then(|lists| 1usize.checked_shl(lists));
        let most = sets.map(|sets| sets.saturating_mul(total));
        if most.is_some_and(|most| most <= CHEAP) {
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
                    within = fingerprints.after(within, bound);
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
