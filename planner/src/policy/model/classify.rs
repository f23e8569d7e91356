//! The rules of each local pod, from the policies that apply to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::class::{Before, Class, ClassRule, Weight};
use super::index::Index;
use super::labels::Kind;
use super::local::{Local, PolicyKey};
use super::ports::RulePorts;
use super::rules::{Action, Atom, Rule, Rules, Tier};
use super::verdicts::{DIRECTIONS, Direction, Number, PerDirection, Verdicts};
use super::{InForce, Model, atoms};

/// The rules of local addresses.
type Classes = BTreeMap<IpAddr, PerDirection<Option<Arc<Class>>>>;

/// The lists of peers of which pods are not known yet, with their namespaces.
pub(super) type Unlisted = BTreeMap<Number, BTreeSet<String>>;

impl Model {
    /// Writes the rules of each local address anew that may have others.
    pub(super) fn classify(&mut self, index: &Index, verdicts: &Verdicts) {
        let mut classes: Classes = BTreeMap::new();
        for address in &self.pending.locals {
            let Some(local) = self.locals.get(address) else {
                continue;
            };
            let was_enforced = self.was_enforced(index, verdicts, *address);
            let applied = local.applied.iter();
            let policies: Vec<(&PolicyKey, &InForce)> = applied
                .filter_map(|key| Some((key, self.in_force.get(key)?)))
                .collect();
            let [ingress, egress] = DIRECTIONS.map(|direction| {
                let kind = local.subject()?;
                if let Some(same) = self.same_rules(&classes, local, direction) {
                    return Some(same);
                }
                let before = before(local, direction, was_enforced);
                let class = self.class(direction, kind, policies.clone(), before);
                class.map(Arc::new)
            });
            classes.insert(*address, PerDirection { ingress, egress });
        }
        for (address, classes) in classes {
            let was_enforced = self.was_enforced(index, verdicts, address);
            let local = self.locals.get(&address);
            let is_queued = local.is_some_and(|local| self.is_queued_for(local));
            let Some(local) = self.locals.get_mut(&address) else {
                continue;
            };
            local.classes = classes;
            let waits = !was_enforced && (local.is_held() || is_queued);
            if std::mem::replace(&mut local.waits, waits) != waits {
                self.pending.enforced.insert(address);
            }
        }
    }

    /// Whether the last plan has enforced an address for the pod that has it now.
    fn was_enforced(&self, index: &Index, verdicts: &Verdicts, address: IpAddr) -> bool {
        let pod = index.local.as_ref().and_then(|all| all.pods.get(&address));
        verdicts.enforced.contains(&address) && self.enforced_for.get(&address) == pod
    }

    /// The rules of another local pod that have been written already, or need not be: those of
    /// a pod to which the same policies apply, and which has the same ports where they count.
    /// Thousands of rules are so held once. Where a rule is doubtful they depend on more.
    fn same_rules(
        &self,
        written: &Classes,
        local: &Local,
        direction: Direction,
    ) -> Option<Arc<Class>> {
        let ports = local.subject().map(|kind| &kind.ports);
        let same = |other: &Local| {
            let of_other = other.subject().map(|kind| &kind.ports);
            other.applied == local.applied && (direction == Direction::Out || of_other == ports)
        };
        self.locals.iter().find_map(|(address, other)| {
            let classes = match written.get(address) {
                None if self.pending.locals.contains(address) => return None,
                None => &other.classes,
                Some(written) => written,
            };
            let class = classes.get(direction).as_ref();
            let shared = class.filter(|class| class.before().is_none() && same(other));
            shared.cloned()
        })
    }

    /// The rules of policies for a pod in one direction; none if no policy is about it.
    fn class(
        &self,
        direction: Direction,
        kind: &Kind,
        mut policies: Vec<(&PolicyKey, &InForce)>,
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
        let is_of_network = |(_, one): &(&PolicyKey, &InForce)| one.rules.tier == Tier::Network;
        let isolated = policies.iter().any(is_of_network);
        let (mut rules, mut weight) = (Vec::new(), Weight::default());
        for (_, one) in policies {
            if !one.counts {
                rules.extend(one.refused(direction));
                continue;
            }
            for (rule, peers) in one.rules_with_peers(direction) {
                match peers {
                    None => weight.everybody += rule.ports.count(),
                    Some(_) => {
                        weight.listed += rule.ports.count();
                        weight.lists += 1;
                    }
                }
                let known = class_rule(direction, kind, one.rules.tier, rule, peers);
                let is_unlisted = peers.is_some_and(|peers| self.unlisted.contains_key(&peers));
                let by_labels = |atoms: &[Atom]| atoms.iter().any(Atom::is_by_labels);
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
        let mut class = Class::new(rules, isolated, before);
        class.weight = weight;
        Some(class)
    }
}

/// A rule for a pod, whose own ports are known.
fn class_rule(
    direction: Direction,
    kind: &Kind,
    tier: Tier,
    rule: &Rule,
    peers: Option<Number>,
) -> ClassRule {
    let mut ports = rule.ports.clone();
    if direction == Direction::In {
        ports.fixed = ports.of(&kind.ports).into_owned();
        ports.named.clear();
    }
    ClassRule {
        tier,
        action: rule.action,
        peers,
        ports,
        doubtful: false,
    }
}

impl InForce {
    /// What stays of its rules in one direction if they do not count.
    fn refused(&self, direction: Direction) -> Option<ClassRule> {
        let mut rules = self.rules.rules.get(direction).iter().flatten();
        let denies = rules.any(|rule| rule.action != Action::Accept);
        denies.then(|| ClassRule {
            tier: self.rules.tier,
            action: Action::Deny,
            peers: None,
            ports: RulePorts::all(),
            doubtful: false,
        })
    }
}

/// What a local pod was allowed in the last plan in which its rules were certain.
fn before(local: &Local, direction: Direction, was_enforced: bool) -> Before {
    if !was_enforced {
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
