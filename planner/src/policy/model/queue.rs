//! Policies that wait for their turn: those that have changed, and those that are to count again
//! as their owner is not refused any more.
//!
//! One plan takes up so many policies as cost little; where there are more, those of the
//! namespaces with the least to do come first, of each those that have changed, and the rest is
//! for the next plans. So nobody waits for a namespace in which thousands of rules change at
//! once. What always holds:
//! - each plan takes up at least one policy, until none is left;
//! - a pod that has not been enforced is not enforced before all policies of its namespace and of
//!   the cluster that have changed were taken up. Those that are to count again only allow it
//!   more.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::Owner;
use super::local::{Local, PolicyKey};
use super::select::{Policies, touched_policies};
use super::{Model, index::Index};

/// How much the policies that one plan takes up may have of rules and peers, each policy counting
/// as one more, if these are more than one policy.
const MAX_SIZE: usize = 150;

/// The policies that wait.
#[derive(Debug)]
pub struct Queue {
    /// Those that have changed, by whose they are.
    waiting: BTreeMap<Owner, BTreeSet<PolicyKey>>,
    /// Those that are as they were, and are to count again.
    pub again: BTreeSet<PolicyKey>,
    max_size: usize,
}

/// A policy that waits.
struct Waiting {
    /// How much it has of rules and peers.
    cost: usize,
    key: PolicyKey,
    /// Whether it has changed; else it is to count again.
    has_changed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            again: BTreeSet::new(),
            max_size: MAX_SIZE,
        }
    }
}

impl Queue {
    /// Whether a policy has changed and waits.
    pub fn has(&self, key: &PolicyKey) -> bool {
        let waiting = self.waiting.get(&Owner::of(key));
        waiting.is_some_and(|waiting| waiting.contains(key))
    }

    /// How many have changed.
    pub fn changed(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.changed() + { self.again.iter() }.filter(|key| !self.has(key)).count()
    }

    /// Whether any have changed that may be about pods of a namespace.
    fn is_about(&self, namespace: &str) -> bool {
        self.waiting.keys().any(|owner| match owner {
            Owner::Cluster => true,
            Owner::Namespace(one) => one == namespace,
        })
    }

    /// For tests that cannot have so much.
    #[cfg(test)]
    pub fn limit(&mut self, max_size: usize) {
        self.max_size = max_size;
    }
}

impl Model {
    /// The policies whose turn it is.
    pub(super) fn next_batch(&mut self, index: &mut Index, first: bool) -> Policies {
        let touched = touched_policies(index);
        if !self.planned {
            // The first plan is of all policies, as nothing of them is in force before it.
            return touched.filter(|_| !first);
        }
        let all = || {
            index
                .policies()
                .chain(self.in_force.keys().cloned())
                .collect()
        };
        for key in touched.unwrap_or_else(all) {
            let waiting = self.queue.waiting.entry(Owner::of(&key)).or_default();
            waiting.insert(key);
        }
        let again = std::mem::take(&mut self.queue.again);
        if self.queue.waiting.is_empty() && again.is_empty() {
            return Some(BTreeSet::new());
        }
        // Whether they go on waiting is seen anew.
        let waiting = self.locals.iter().filter(|(_, local)| local.waits);
        self.pending
            .locals
            .extend(waiting.map(|(address, _)| *address));
        let cost = |key: &PolicyKey| {
            let in_force = self.in_force.get(key);
            let was = in_force.map_or(0, |one| one.rules.size());
            index.size_of(key).max(was)
        };
        // Those that have changed come first.
        let mut owners: BTreeMap<Owner, (usize, Vec<Waiting>)> = BTreeMap::new();
        let of_owners = std::mem::take(&mut self.queue.waiting).into_values();
        let changed = of_owners.flatten().map(|key| (key, true));
        for (key, has_changed) in changed.chain(again.into_iter().map(|key| (key, false))) {
            let (sum, keys) = owners.entry(Owner::of(&key)).or_default();
            let cost = cost(&key);
            *sum += cost;
            keys.push(Waiting {
                cost,
                key,
                has_changed,
            });
        }
        let mut owners: Vec<_> = owners.into_values().collect();
        owners.sort_by_key(|(cost, _)| *cost);
        let (mut taken, mut left) = (BTreeSet::new(), self.queue.max_size);
        for one in owners.into_iter().flat_map(|(_, keys)| keys) {
            let Waiting {
                cost,
                key,
                has_changed,
            } = one;
            if cost <= left || taken.is_empty() {
                left = left.saturating_sub(cost);
                taken.insert(key);
                continue;
            }
            left = 0;
            if has_changed {
                let waiting = self.queue.waiting.entry(Owner::of(&key)).or_default();
                waiting.insert(key);
            } else {
                self.queue.again.insert(key);
            }
        }
        Some(taken)
    }

    /// Whether policies that may be about a local pod wait for their turn.
    pub(super) fn is_queued_for(&self, local: &Local) -> bool {
        let subject = local.subject();
        subject.is_some_and(|kind| self.queue.is_about(&kind.namespace))
    }
}
