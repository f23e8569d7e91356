//! Policies that have changed and wait for their turn.
//!
//! One plan takes up so many changed policies as cost little; where there are more, those of
//! the namespaces with the least to do come first, and the rest is for the next plans. So nobody
//! waits for a namespace in which thousands of rules change at once. What always holds:
//! - each plan takes up at least one policy, until none is left;
//! - a pod that has not been enforced is not enforced before all policies of its namespace and of
//!   the cluster were taken up.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::Owner;
use super::local::{Local, PolicyKey};
use super::select::{Policies, touched_policies};
use super::{Model, index::Index};

/// How much the policies that one plan takes up may have of rules and peers, each policy counting
/// as one more, if these are more than one policy.
const MAX_SIZE: usize = 150;

/// The policies that wait, by whose they are.
#[derive(Debug)]
pub struct Queue {
    waiting: BTreeMap<Owner, BTreeSet<PolicyKey>>,
    max_size: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            max_size: MAX_SIZE,
        }
    }
}

impl Queue {
    /// Whether a policy is in it.
    pub fn has(&self, key: &PolicyKey) -> bool {
        let waiting = self.waiting.get(&Owner::of(key));
        waiting.is_some_and(|waiting| waiting.contains(key))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Whether there are any that may be about pods of a namespace.
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
    /// The policies that have changed and whose turn it is.
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
        if self.queue.waiting.is_empty() {
            return Some(BTreeSet::new());
        }
        // Whether they go on waiting is seen anew.
        let waiting = self.locals.iter().filter(|(_, local)| local.waits);
        self.pending
            .locals
            .extend(waiting.map(|(address, _)| *address));
        let cost = |key: &PolicyKey| {
            let was = self.in_force.get(key);
            let was = was.map_or(0, |one| one.rules.size());
            index.size_of(key).max(was)
        };
        let mut owners: Vec<(usize, Vec<(usize, PolicyKey)>)> = Vec::new();
        for keys in std::mem::take(&mut self.queue.waiting).into_values() {
            let keys: Vec<_> = keys.into_iter().map(|key| (cost(&key), key)).collect();
            owners.push((keys.iter().map(|(cost, _)| cost).sum(), keys));
        }
        owners.sort_by_key(|(cost, _)| *cost);
        let (mut taken, mut left) = (BTreeSet::new(), self.queue.max_size);
        for (cost, key) in owners.into_iter().flat_map(|(_, keys)| keys) {
            if cost <= left || taken.is_empty() {
                left = left.saturating_sub(cost);
                taken.insert(key);
            } else {
                left = 0;
                let waiting = self.queue.waiting.entry(Owner::of(&key)).or_default();
                waiting.insert(key);
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
