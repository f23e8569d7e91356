//! The rules that apply to one local pod in one direction, and what they allow for an
//! identity.
//!
//! While it is not known of all pods whether they are in the list of peers of a rule, such
//! a class has bounds: what is allowed at least, and at most, whoever turns out to be in
//! the list. What is within both is decided; in between the rules before decide
//! ([`Before`]).

use std::collections::HashMap;
use std::sync::Arc;

use tweed_core::object::pod::NamedPort;

use super::ports::{PortSet, RulePorts};
use super::rules::{Action, Tier};
use super::verdicts::Number;

/// One rule, in the order in which rules are asked.
#[derive(Debug, Clone)]
pub struct ClassRule {
    /// When it is asked.
    pub tier: Tier,
    /// What it decides.
    pub action: Action,
    /// The list of peers; none means everybody.
    pub peers: Option<Number>,
    /// Protocols and ports.
    pub ports: RulePorts,
    /// Whether it stands for pods that are not known yet: it follows a rule for those that
    /// are, and may be about any of its peers and ports, or about nobody.
    pub doubtful: bool,
}

/// What a pod was allowed in the last plan in which its rules were certain.
#[derive(Debug, Clone)]
pub enum Before {
    /// Nothing: it had not been judged.
    Nothing,
    /// Everything: no policy was about it in this direction.
    Everything,
    /// What these rules allow.
    Rules(Arc<Class>),
}

/// The rules of a local pod in one direction.
#[derive(Debug, Default)]
pub struct Class {
    rules: Vec<ClassRule>,
    /// Whether a NetworkPolicy selects the pod in this direction.
    isolated: bool,
    /// What decides where doubtful rules leave it open; none if no rule is doubtful.
    before: Option<Before>,
    /// The places of rules for everybody. Those of the rules before follow on the others.
    everybody: Vec<usize>,
    by_peers: HashMap<Number, Vec<usize>>,
}

/// What is assumed of doubtful rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Whatever allows least.
    Least,
    /// Whatever allows most.
    Most,
}

impl Class {
    /// Rules in the order in which they are asked. `before` counts if one is doubtful.
    pub fn new(rules: Vec<ClassRule>, isolated: bool, before: Before) -> Self {
        let is_doubtful = rules.iter().any(|rule| rule.doubtful);
        let class = Self {
            isolated,
            before: is_doubtful.then_some(before),
            ..Self::default()
        };
        let of_before = class.rules_before();
        let (mut everybody, mut by_peers) = (Vec::new(), HashMap::<_, Vec<usize>>::new());
        for (at, rule) in rules.iter().chain(of_before).enumerate() {
            match rule.peers {
                Some(peers) => by_peers.entry(peers).or_default().push(at),
                None => everybody.push(at),
            }
        }
        Self {
            rules,
            everybody,
            by_peers,
            ..class
        }
    }

    /// What decides where it is not certain yet what the rules allow; none if it is.
    pub fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// The rules before, as far as they still decide.
    pub fn rules_before(&self) -> &[ClassRule] {
        match &self.before {
            Some(Before::Rules(class)) => &class.rules,
            Some(Before::Nothing | Before::Everything) | None => &[],
        }
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
        let (rules, before) = self.split(matching);
        let before = before.map(|at| &self.rules_before()[at]);
        let mut rules = rules.iter().map(|at| &self.rules[*at]).chain(before);
        rules.any(|rule| !rule.ports.named.is_empty())
    }

    /// What these rules allow for a destination with these named ports. `own`: for a
    /// flow of the pod to itself, which NetworkPolicies always allow.
    pub fn allowed(&self, matching: &[usize], ports: &[NamedPort], own: bool) -> PortSet {
        let (rules, of_before) = self.split(matching);
        let least = self.bound(Bound::Least, rules, ports, own);
        let before = match &self.before {
            None | Some(Before::Nothing) => return least,
            Some(Before::Everything) => PortSet::all(),
            Some(Before::Rules(class)) => {
                let matching: Vec<usize> = of_before.collect();
                class.allowed(&matching, ports, own)
            }
        };
        let most = self.bound(Bound::Most, rules, ports, own);
        least.union(&before.intersection(&most))
    }

    /// The places of the rules, and those of the rules before among them.
    fn split<'a>(&self, matching: &'a [usize]) -> (&'a [usize], impl Iterator<Item = usize> + 'a) {
        let own = self.rules.len();
        let (rules, before) = matching.split_at(matching.partition_point(|at| *at < own));
        (rules, before.iter().map(move |at| at - own))
    }

    /// What these rules allow at least, or at most.
    fn bound(&self, bound: Bound, matching: &[usize], ports: &[NamedPort], own: bool) -> PortSet {
        let rules = || matching.iter().map(|at| &self.rules[*at]);
        let of_tier = |tier| rules().filter(move |rule| rule.tier == tier);
        let (mut allowed, rest) = tier(bound, of_tier(Tier::Admin), ports, PortSet::all());
        if self.isolated {
            let counts = |rule: &&ClassRule| bound == Bound::Most || !rule.doubtful;
            let counting = of_tier(Tier::Network).filter(counts);
            let granted = match own {
                true => PortSet::all(),
                false => PortSet::union_of(counting.map(|rule| rule.ports.of(ports))),
            };
            return allowed.union(&granted.intersection(&rest));
        }
        let (accepted, rest) = tier(bound, of_tier(Tier::Baseline), ports, rest);
        allowed = allowed.union(&accepted);
        allowed.union(&rest)
    }
}

/// Asks the rules of a tier in their order: what they accept of `asked`, and what they
/// leave to the next tier.
fn tier<'a>(
    bound: Bound,
    rules: impl Iterator<Item = &'a ClassRule>,
    ports: &[NamedPort],
    asked: PortSet,
) -> (PortSet, PortSet) {
    let (mut accepted, mut passed, mut rest) = (PortSet::default(), PortSet::default(), asked);
    // What a doubtful rule may have passed already: at least, it needs the next tier too.
    let mut perhaps_passed = PortSet::default();
    for rule in rules {
        let matched = rule.ports.of(ports).intersection(&rest);
        match (rule.action, rule.doubtful, bound) {
            (Action::Accept, true, Bound::Least) | (Action::Deny, true, Bound::Most) => continue,
            (Action::Pass, true, Bound::Least) => {
                perhaps_passed = perhaps_passed.union(&matched);
                continue;
            }
            (Action::Pass, true, Bound::Most) => {
                passed = passed.union(&matched);
                continue;
            }
            (Action::Accept, ..) => {
                passed = passed.union(&matched.intersection(&perhaps_passed));
                accepted = accepted.union(&matched.difference(&perhaps_passed));
            }
            (Action::Pass, ..) => passed = passed.union(&matched),
            (Action::Deny, ..) => {}
        }
        rest = rest.difference(&matched);
    }
    (accepted, rest.union(&passed))
}
