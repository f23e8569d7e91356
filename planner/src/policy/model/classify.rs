//! The rules of each local pod, from the policies that apply to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::class::{Before, Class, ClassRule};
use super::index::Index;
use super::labels::Kind;
use super::local::{Local, PolicyKey};
use super::rules::{Atom, Rules, Tier};
use super::verdicts::{DIRECTIONS, Direction, Number, PerDirection, Verdicts};
use super::{InForce, Model, atoms};

/// The lists of peers of which pods are not known yet, with their namespaces.
pub(super) type Unlisted = BTreeMap<Number, BTreeSet<String>>;

impl Model {
    /// Writes the rules of each local address anew that may have others.
    pub(super) fn classify(&mut self, index: &Index, verdicts: &Verdicts) {
        for address in &self.pending.locals {
            let Some(local) = self.locals.get_mut(address) else {
                continue;
            };
            let pod = index.local.as_ref().and_then(|all| all.pods.get(address));
            let is_judged = verdicts.judged.contains(address);
            let was_judged = is_judged && self.judged_for.get(address) == pod;
            let applied = local.applied.iter();
            let policies: Vec<(&PolicyKey, &InForce)> = applied
                .filter_map(|key| Some((key, self.in_force.get(key)?)))
                .collect();
            let subject = local.subject().cloned();
            let [ingress, egress] = DIRECTIONS.map(|direction| {
                let kind = subject.as_ref()?;
                let before = before(local, direction, was_judged);
                let class = class(direction, kind, policies.clone(), &self.unlisted, before);
                class.map(Arc::new)
            });
            local.classes = PerDirection { ingress, egress };
            let waits = !was_judged && local.is_held();
            if std::mem::replace(&mut local.waits, waits) != waits {
                self.pending.judged.insert(*address);
            }
        }
    }
}

/// What a local pod was allowed in the last plan in which its rules were certain.
fn before(local: &Local, direction: Direction, was_judged: bool) -> Before {
    if !was_judged {
        return Before::Nothing;
    }
    match local.classes.get(direction) {
        None => Before::Everything,
        Some(class) => match class.before() {
            Some(before) => before.clone(),
            None => Before::Rules(class.clone()),
        },
    }
}

/// The rules of policies for a pod in one direction; none if no policy is about it.
fn class(
    direction: Direction,
    kind: &Kind,
    mut policies: Vec<(&PolicyKey, &InForce)>,
    unlisted: &Unlisted,
    before: Before,
) -> Option<Class> {
    policies.retain(|(_, one)| one.rules.rules.get(direction).is_some());
    if policies.is_empty() {
        return None;
    }
    policies.sort_by_key(|(key, one)| {
        let Rules { tier, priority, .. } = one.rules;
        (tier, priority, *key)
    });
    let isolated = policies
        .iter()
        .any(|(_, one)| one.rules.tier == Tier::Network);
    let mut rules = Vec::new();
    for (_, one) in policies {
        let each = one.rules.rules.get(direction).iter().flatten();
        for (rule, peers) in each.zip(one.peers.get(direction)) {
            let mut ports = rule.ports.clone();
            if direction == Direction::In {
                ports.fixed = ports.of(&kind.ports);
                ports.named.clear();
            }
            let known = ClassRule {
                tier: one.rules.tier,
                action: rule.action,
                peers: *peers,
                ports,
                doubtful: false,
            };
            let is_unlisted = peers.is_some_and(|peers| unlisted.contains_key(&peers));
            let by_labels = |atoms: &BTreeSet<Atom>| atoms.iter().any(Atom::is_by_labels);
            let by_labels = atoms(&rule.peers).is_some_and(by_labels);
            let others = is_unlisted.then(|| ClassRule {
                peers: peers.filter(|_| !by_labels),
                ports: known.ports.widest(),
                doubtful: true,
                ..known.clone()
            });
            rules.push(known);
            rules.extend(others);
        }
    }
    Some(Class::new(rules, isolated, before))
}
