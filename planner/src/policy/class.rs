//! The rules that apply to one local pod in one direction, and what they allow for an
//! identity.

use std::collections::HashMap;

use tweed_core::object::pod::NamedPort;

use super::desired::Number;
use super::ports::{PortSet, RulePorts};
use super::rules::{Action, Tier};

/// One rule, in the order in which rules are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassRule {
    /// When it is asked.
    pub tier: Tier,
    /// What it decides.
    pub action: Action,
    /// The list of peers; none means everybody.
    pub peers: Option<Number>,
    /// Protocols and ports.
    pub ports: RulePorts,
}

/// The rules of a local pod in one direction.
#[derive(Debug, Default)]
pub struct Class {
    rules: Vec<ClassRule>,
    /// Whether a NetworkPolicy selects the pod in this direction.
    isolated: bool,
    everybody: Vec<usize>,
    by_peers: HashMap<Number, Vec<usize>>,
}

/// The same rules in the same order; all else follows from them.
impl PartialEq for Class {
    fn eq(&self, other: &Self) -> bool {
        self.isolated == other.isolated && self.rules == other.rules
    }
}

impl Class {
    /// Rules in the order in which they are asked.
    pub fn new(rules: Vec<ClassRule>, isolated: bool) -> Self {
        let mut class = Self {
            isolated,
            ..Self::default()
        };
        for (at, rule) in rules.iter().enumerate() {
            match rule.peers {
                Some(peers) => class.by_peers.entry(peers).or_default().push(at),
                None => class.everybody.push(at),
            }
        }
        class.rules = rules;
        class
    }

    /// The rules that are about an identity in these lists of peers, in their order.
    pub fn matching(&self, sets: &[Number]) -> Vec<usize> {
        let mut found = Vec::new();
        self.match_into(sets, &mut found);
        found
    }

    /// As [`Class::matching`], in place of what `found` has.
    pub fn match_into(&self, sets: &[Number], found: &mut Vec<usize>) {
        found.clear();
        found.extend(&self.everybody);
        for set in sets {
            found.extend(self.by_peers.get(set).into_iter().flatten());
        }
        found.sort_unstable();
    }

    /// Whether any of these rules has named ports.
    pub fn has_names(&self, matching: &[usize]) -> bool {
        let mut rules = matching.iter().map(|at| &self.rules[*at]);
        rules.any(|rule| !rule.ports.named.is_empty())
    }

    /// What these rules allow for a destination with these named ports. `own`: for a
    /// flow of the pod to itself, which NetworkPolicies always allow.
    pub fn allowed(&self, matching: &[usize], ports: &[NamedPort], own: bool) -> PortSet {
        let rules = || matching.iter().map(|at| &self.rules[*at]);
        let of_tier = |tier| rules().filter(move |rule| rule.tier == tier);
        let (mut allowed, rest) = tier(of_tier(Tier::Admin), ports, PortSet::all());
        if self.isolated {
            let mut granted = PortSet::default();
            for rule in of_tier(Tier::Network) {
                granted = granted.union(&rule.ports.of(ports));
            }
            if own {
                granted = PortSet::all();
            }
            return allowed.union(&granted.intersection(&rest));
        }
        let (accepted, rest) = tier(of_tier(Tier::Baseline), ports, rest);
        allowed = allowed.union(&accepted);
        allowed.union(&rest)
    }
}

/// Asks the rules of a tier in their order: what they accept of `asked`, and what they
/// leave to the next tier.
fn tier<'a>(
    rules: impl Iterator<Item = &'a ClassRule>,
    ports: &[NamedPort],
    asked: PortSet,
) -> (PortSet, PortSet) {
    let (mut accepted, mut passed, mut rest) = (PortSet::default(), PortSet::default(), asked);
    for rule in rules {
        let matched = rule.ports.of(ports).intersection(&rest);
        rest = rest.difference(&matched);
        match rule.action {
            Action::Accept => accepted = accepted.union(&matched),
            Action::Pass => passed = passed.union(&matched),
            Action::Deny => {}
        }
    }
    (accepted, rest.union(&passed))
}
