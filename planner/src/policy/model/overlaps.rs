//! The policies whose networks are too many to be told apart.
//!
//! An identity stands for the lists of peers that an address is in
//! ([`Networks`](super::peer_sets::Networks)), and each pod can need a profile of its
//! own for each. With n rules of which each has all addresses but one these are n lists of n
//! numbers and, if each rule has a port of its own, n² ports, of an object whose size grows
//! with n. So this *cost* is limited on each node; what is in proportion to the objects is not.
//!
//! Each namespace bears what its own policies cost for its own pods, and loses the networks of
//! its most costly policies if that is too much. What namespaces cost together is limited besides:
//! the most costly one loses its networks first. ClusterNetworkPolicies are together like one
//! namespace, and lose nothing for what others cost.

mod cost;

use std::collections::{BTreeMap, BTreeSet};

use super::Model;
use super::local::PolicyKey;
use super::rules::Rules;
use cost::Combinations;

/// The most that networks may cost.
#[derive(Debug, Clone, Copy)]
pub struct MaxCost {
    /// Of one namespace: numbers of lists in all identities, and ranges of ports in all
    /// profiles.
    pub own: usize,
    /// Of all together: what each costs, but that numbers of lists in identities are counted
    /// for all policies of the node at once.
    pub joint: usize,
    /// What costs at most this by a count of lists alone counts as nothing: then nobody has to
    /// look at the ranges, which are many in a list from elsewhere.
    pub cheap: usize,
}

impl Default for MaxCost {
    fn default() -> Self {
        Self {
            own: 500_000,
            joint: 2_000_000,
            cheap: 1_000,
        }
    }
}

/// Whose policies bear their cost together: those of a namespace, or all of the cluster.
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
}

/// The policies that match no network.
#[derive(Debug, Default)]
pub struct WithoutNetworks {
    /// For what each namespace costs.
    own: BTreeMap<Owner, BTreeSet<PolicyKey>>,
    /// For what they cost together.
    joint: BTreeSet<PolicyKey>,
    /// What the profiles cost for the networks of each owner's policies but those in `own`.
    profiles: BTreeMap<Owner, usize>,
    /// What the lists of all policies but those in `own` cost.
    lists: usize,
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

/// Some of the policies of a node.
type Keys<'a> = BTreeSet<&'a PolicyKey>;

impl Model {
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
        let mut owned: BTreeMap<Owner, Policies<'_>> = BTreeMap::new();
        for (key, rules) in policies.iter().filter(|(_, rules)| rules.has_networks()) {
            let own = owned.entry(Owner::of(key)).or_default();
            own.insert(key, rules);
        }
        let mut owners: BTreeSet<Owner> = changed.iter().map(Owner::of).collect();
        // They apply to pods of all namespaces.
        if owners.contains(&Owner::Cluster) {
            owners.extend(owned.keys().cloned());
        }
        let search = Search {
            compiled: self,
            policies,
            combinations: self.combinations(),
            owned,
        };
        let (mut lists, mut profiles) = (lists, false);
        for owner in &owners {
            let (without, cost) = search.too_costly(known, owner);
            lists |= replace(&mut known.own, owner, without);
            profiles |= replace(&mut known.profiles, owner, cost);
        }
        if lists {
            let left = search.left(known);
            known.lists = search.cost_of_lists(left.map(|(_, rules)| rules));
        }
        // Which of too many lose theirs depends on more than on what each owner costs.
        if lists || profiles || !known.joint.is_empty() {
            known.joint = search.too_costly_together(known);
        }
    }
}

/// A search for policies that lose their networks.
struct Search<'a> {
    compiled: &'a Model,
    policies: &'a Policies<'a>,
    combinations: Combinations<'a>,
    /// The policies with networks.
    owned: BTreeMap<Owner, Policies<'a>>,
}

impl<'a> Search<'a> {
    /// Those policies of an owner without whose networks the others cost no more than one
    /// owner's may, and what the profiles cost then.
    fn too_costly(&self, known: &WithoutNetworks, owner: &Owner) -> (BTreeSet<PolicyKey>, usize) {
        let Some(own) = self.owned.get(owner) else {
            return Default::default();
        };
        let max = self.compiled.max_cost.own;
        let cost = |taken: &Keys<'_>| {
            let rules = taken.iter().filter_map(|key| own.get(key).copied());
            let lists = self.cost_of_lists(rules);
            // Where the lists are too many already it does not matter.
            let profiles = match lists <= max {
                true => self.cost_of_profiles(known, owner, taken, max),
                false => 0,
            };
            (lists.saturating_add(profiles), profiles)
        };
        let (all, profiles) = cost(&own.keys().copied().collect());
        if all <= max {
            return (BTreeSet::new(), profiles);
        }
        let ranked = self.ranked(own.keys().copied().collect());
        let (taken, without) = split(&ranked, |taken| cost(taken).0 <= max);
        let (_, profiles) = cost(&taken);
        (without, profiles)
    }

    /// Those policies without whose networks all others cost no more than all may.
    fn too_costly_together(&self, known: &WithoutNetworks) -> BTreeSet<PolicyKey> {
        let max = self.compiled.max_cost.joint;
        let profiles = known.profiles.values().copied();
        if profiles.fold(known.lists, usize::saturating_add) <= max {
            return BTreeSet::new();
        }
        let mut left: BTreeMap<Owner, Vec<(&PolicyKey, &Rules)>> = BTreeMap::new();
        for (key, rules) in self.left(known) {
            left.entry(Owner::of(key)).or_default().push((key, rules));
        }
        let profiles = |owner: &Owner| known.profiles.get(owner).copied().unwrap_or_default();
        let fits = |taken: &Keys<'_>| {
            let all = left.values().flatten();
            let all = all.filter(|(key, _)| taken.contains(key));
            let mut sum = self.cost_of_lists(all.map(|(_, rules)| *rules));
            for (owner, own) in &left {
                if sum > max {
                    break;
                }
                let is_taken = own.iter().filter(|(key, _)| taken.contains(key)).count();
                sum = sum.saturating_add(match is_taken {
                    0 => 0,
                    all if all == own.len() => profiles(owner),
                    _ => self.cost_of_profiles(known, owner, taken, max),
                });
            }
            sum <= max
        };
        // Those of the cluster come first.
        let rank = |owner: &Owner, own: &[(&PolicyKey, &Rules)]| match owner {
            Owner::Cluster => 0,
            Owner::Namespace(_) => {
                let lists = self.cost_of_lists(own.iter().map(|(_, rules)| *rules));
                lists.saturating_add(profiles(owner))
            }
        };
        let mut owners: Vec<_> = left.iter().collect();
        owners.sort_by_cached_key(|(owner, own)| (rank(owner, own), *owner));
        let ranked = owners.into_iter().flat_map(|(_, own)| {
            let keys = own.iter().map(|(key, _)| *key);
            self.ranked(keys.collect())
        });
        split(&ranked.collect::<Vec<_>>(), fits).1
    }

    /// The policies with networks that lose none for what their own namespaces cost.
    fn left(&self, known: &WithoutNetworks) -> impl Iterator<Item = (&'a PolicyKey, &'a Rules)> {
        let all = self.owned.values().flatten();
        let left = all.filter(|(key, _)| !known.is_too_costly(key));
        left.map(|(key, rules)| (*key, *rules))
    }

    /// Policies by what their lists cost alone, the cheapest first.
    fn ranked<'b>(&self, mut keys: Vec<&'b PolicyKey>) -> Vec<&'b PolicyKey> {
        let alone = |key: &PolicyKey| {
            let rules = self.policies.get(key).copied();
            self.cost_of_lists(rules)
        };
        keys.sort_by_cached_key(|key| (alone(key), *key));
        keys
    }
}

/// Sets a value, of which the default is not kept. True if it was another one.
fn replace<V: Default + PartialEq>(
    values: &mut BTreeMap<Owner, V>,
    owner: &Owner,
    value: V,
) -> bool {
    let differs = values.get(owner).unwrap_or(&V::default()) != &value;
    if value == V::default() {
        values.remove(owner);
    } else if differs {
        values.insert(owner.clone(), value);
    }
    differs
}

/// As many of these, from the first one on, as fit, and those that come after.
fn split<'a>(
    ranked: &[&'a PolicyKey],
    fits: impl Fn(&Keys<'_>) -> bool,
) -> (Keys<'a>, BTreeSet<PolicyKey>) {
    let (mut fitting, mut too_many) = (0, ranked.len());
    while too_many - fitting > 1 {
        let middle = fitting.midpoint(too_many);
        match fits(&ranked[..middle].iter().copied().collect()) {
            true => fitting = middle,
            false => too_many = middle,
        }
    }
    let (taken, without) = ranked.split_at(fitting);
    (
        taken.iter().copied().collect(),
        without.iter().map(|key| (*key).clone()).collect(),
    )
}
