//! Policies that wait for a list of pods, after the first plan.
//!
//! A *list of peers* is *unlisted* while the pods of a namespace that it is about have not
//! been listed. A policy with such a list that selects a local pod *waits*. What always
//! holds of the pods and directions that a waiting policy selects:
//! - what the rules say about a pod that has been listed is in force;
//! - where the verdict on another address is the same whether the address is in the unlisted
//!   lists or not, and whatever ports its names are, that verdict is in force;
//! - anywhere else the rules of the last plan without waiting decide, about who is in
//!   their lists by now;
//! - so nothing passes that the complete rules refuse, but for what the rules before
//!   allowed and only unlisted lists can refuse; and nothing is cut that both allow;
//! - a pod that has not been enforced is not enforced before no policy that selects it waits.
//!
//! All other pods and directions are evaluated as if nothing waited.
//!
//! For this the lists and the names of ports of the rules before stay in use, and a scope
//! that has been listed is watched on until what takes its place has been listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::Model;
use super::class::Class;
use super::classify::Unlisted;
use super::index::Index;
use super::local::{Local, PolicyKey};
use super::pods::PodScope;
use super::rules::Namespaces;
use super::verdicts::{DIRECTIONS, Direction, Number};

/// Maximum number of namespaces that a sentence names.
const MAX_NAMED: usize = 3;

impl Model {
    /// Finds the lists of peers that are unlisted, and notes the local pods whose rules
    /// may be others by that. Before there is a plan there are none: the first one waits for
    /// all lists if it is not an open one.
    pub(super) fn find_unlisted(&mut self, index: &Index) {
        let unlisted = if self.has_plan() {
            self.unlisted_now(index)
        } else {
            Unlisted::new()
        };
        let was = std::mem::replace(&mut self.unlisted, unlisted);
        let is_other = |list: Number| was.contains_key(&list) != self.unlisted.contains_key(&list);
        let differing = self.in_force.iter().filter(|(_, one)| {
            let mut both = DIRECTIONS.into_iter().flat_map(|way| one.numbers(way));
            both.any(is_other)
        });
        let others: BTreeSet<&PolicyKey> = differing.map(|(key, _)| key).collect();
        if others.is_empty() {
            return;
        }
        for (address, local) in &self.locals {
            if local.applied.iter().any(|policy| others.contains(policy)) {
                self.pending.locals.insert(*address);
            }
        }
    }

    fn unlisted_now(&self, index: &Index) -> Unlisted {
        if index.pods.is_complete(&PodScope::All) {
            return Unlisted::new();
        }
        let mut known: HashMap<&Namespaces, BTreeSet<String>> = HashMap::new();
        let mut unlisted = Unlisted::new();
        for (number, all) in self.peer_sets.pods_of() {
            let mut left = BTreeSet::new();
            for namespaces in all {
                let entry = known.entry(namespaces);
                let of = entry.or_insert_with_key(|namespaces| index.unlisted(namespaces));
                left.extend(of.iter().cloned());
            }
            if !left.is_empty() {
                unlisted.insert(number, left);
            }
        }
        unlisted
    }

    /// Keeps the lists in use that rules before still need, and gives up those that none
    /// needs any more.
    pub(super) fn retain_lists(&mut self) {
        let before = self.rules_before();
        let needed: BTreeSet<Number> = before.flat_map(|(_, class)| class.lists_before()).collect();
        for one in needed.difference(&self.retained) {
            self.peer_sets.use_again(*one);
        }
        for one in self.retained.difference(&needed) {
            self.peer_sets.release(*one);
        }
        self.retained = needed;
    }

    /// Whether a policy that waits selects any local pod.
    pub(super) fn is_any_held(&self) -> bool {
        self.rules_before().next().is_some()
    }

    /// The rules of local pods that are held, with their direction.
    pub(super) fn rules_before(&self) -> impl Iterator<Item = (Direction, &Class)> {
        self.locals.values().flat_map(|local| {
            let both = DIRECTIONS.map(|direction| (direction, local.classes.get(direction)));
            both.into_iter().filter_map(|(direction, class)| {
                let class = class.as_deref()?;
                class.before().is_some().then_some((direction, class))
            })
        })
    }

    /// The policies that select a local pod and wait, each with the namespaces whose pods
    /// are not listed; with an address and a direction only those about that.
    pub fn waiting(
        &self,
        of: Option<(IpAddr, Direction)>,
    ) -> BTreeMap<&PolicyKey, BTreeSet<&String>> {
        let local = of.map(|(address, _)| self.locals.get(&address));
        let mut waiting: BTreeMap<_, BTreeSet<&String>> = BTreeMap::new();
        // Mostly: not each of a thousand policies is looked at for each pod that comes.
        if self.unlisted.is_empty() {
            return waiting;
        }
        for (key, one) in &self.in_force {
            let applies = |known: &Local| known.applied.contains(key);
            if local.is_some_and(|local| !local.is_some_and(applies)) {
                continue;
            }
            for direction in DIRECTIONS {
                if of.is_some_and(|(_, only)| only != direction) {
                    continue;
                }
                let lists = one.numbers(direction);
                let left = lists.filter_map(|list| self.unlisted.get(&list));
                for left in left {
                    waiting.entry(key).or_default().extend(left);
                }
            }
        }
        waiting
    }

    /// A sentence for each policy that waits.
    pub fn waiting_texts(&self, of: Option<(IpAddr, Direction)>) -> Vec<String> {
        let waiting = self.waiting(of);
        let sentence = |(policy, left): (&PolicyKey, BTreeSet<&String>)| {
            let whose = self.whose_pods(&left);
            format!("{policy} waits for the list of the pods of {whose}")
        };
        waiting.into_iter().map(sentence).collect()
    }

    fn whose_pods(&self, namespaces: &BTreeSet<&String>) -> String {
        if self.peers.contains(&PodScope::All) {
            return "all nodes".to_owned();
        }
        let names: Vec<&str> = { namespaces.iter() }
            .take(MAX_NAMED)
            .map(|name| name.as_str())
            .collect();
        let named = names.join(", ");
        match namespaces.len() {
            1 => format!("Namespace {named}"),
            count if count <= MAX_NAMED => format!("Namespaces {named}"),
            count => format!("Namespaces {named} and {} more", count - MAX_NAMED),
        }
    }
}
