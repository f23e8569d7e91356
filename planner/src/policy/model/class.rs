//! The rules that apply to one local pod in one direction, and what they allow for an
//! identity.
//!
//! While it is not known of all pods whether they are in the list of peers of a rule, such
//! a class has bounds: what is allowed at least, and at most, whoever turns out to be in
//! the list. What is within both is decided; in between the rules before decide
//! ([`Before`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tweed_core::object::pod::NamedPort;

use super::identities::Content;
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
    /// are, and may be about any of its peers and ports, but pods that have been listed, or
    /// about nobody.
    pub doubtful: bool,
}

/// What a pod was allowed in the last plan in which its rules were certain.
#[derive(Debug, Clone)]
pub enum Before {
    /// Nothing: it had not been enforced.
    Nothing,
    /// Everything: no policy was about it in this direction.
    Everything,
    /// What these rules allow.
    Rules(Arc<Class>),
}

/// The rules of a local pod in one direction. Most are of NetworkPolicies and allow ports that
/// have no names: of these only the result of those for each list of peers is stored.
#[derive(Debug, Default)]
pub struct Class {
    /// What such rules for everybody allow.
    everybody: PortSet,
    /// What those for each list of peers allow.
    lists: BTreeMap<Number, PortSet>,
    /// All others, in the order in which they are asked.
    rules: Vec<ClassRule>,
    /// Whether a NetworkPolicy selects the pod in this direction.
    isolated: bool,
    /// How much there is in the policies of these rules.
    pub weight: Weight,
    /// What decides where doubtful rules leave it open; none if no rule is doubtful.
    before: Option<Before>,
    /// The places of rules for everybody.
    for_all: Vec<usize>,
    by_peers: HashMap<Number, Vec<usize>>,
}

/// What the rules of a pod have to say about an identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Matching {
    /// The lists of peers that it is in and that are of [`Class::lists`].
    lists: Vec<Number>,
    /// The places of other rules, in their order.
    rules: Vec<usize>,
    /// The same of the rules before.
    before: Option<Box<Self>>,
}

/// What is assumed of doubtful rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Whatever allows least.
    Least,
    /// Whatever allows most.
    Most,
}

/// How much rules say, from which follows what they can cost at most.
#[derive(Debug, Default, Clone, Copy)]
pub struct Weight {
    /// Elements for everybody.
    pub everybody: usize,
    /// Elements for lists of peers.
    pub listed: usize,
    /// Rules with a list of peers.
    pub lists: usize,
}

impl Class {
    /// Rules in the order in which they are asked. `before` counts if one is doubtful.
    pub fn new(rules: Vec<ClassRule>, isolated: bool, before: Before) -> Self {
        let is_doubtful = rules.iter().any(|rule| rule.doubtful);
        let (plain, rules): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| {
            rule.tier == Tier::Network && !rule.doubtful && rule.ports.named.is_empty()
        });
        let mut of_peers: BTreeMap<Option<Number>, Vec<PortSet>> = BTreeMap::new();
        for rule in plain {
            of_peers
                .entry(rule.peers)
                .or_default()
                .push(rule.ports.fixed);
        }
        let mut class = Self {
            isolated,
            before: is_doubtful.then_some(before),
            ..Self::default()
        };
        for (peers, sets) in of_peers {
            let all = PortSet::union_of(sets.into_iter().map(Cow::Owned));
            match peers {
                None => class.everybody = all,
                Some(peers) => drop(class.lists.insert(peers, all)),
            }
        }
        for (at, rule) in rules.iter().enumerate() {
            match rule.peers {
                Some(peers) => class.by_peers.entry(peers).or_default().push(at),
                None => class.for_all.push(at),
            }
        }
        Self { rules, ..class }
    }

    /// What decides where it is not certain yet what the rules allow; none if it is.
    pub fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// The rules before, as far as they still decide.
    fn class_before(&self) -> Option<&Self> {
        match &self.before {
            Some(Before::Rules(class)) => Some(class),
            Some(Before::Nothing | Before::Everything) | None => None,
        }
    }

    /// The lists of peers of the rules before, as far as they still decide.
    pub fn lists_before(&self) -> impl Iterator<Item = Number> {
        self.class_before().into_iter().flat_map(|class| {
            let others = class.rules.iter().filter_map(|rule| rule.peers);
            class.lists.keys().copied().chain(others)
        })
    }

    /// The names of ports of the rules before, as far as they still decide.
    pub fn names_before(&self) -> impl Iterator<Item = &String> {
        let rules = self
            .class_before()
            .into_iter()
            .flat_map(|class| &class.rules);
        rules.flat_map(|rule| rule.ports.named.iter().map(|(_, name)| name))
    }

    /// What is said about an identity.
    pub fn matching(&self, identity: &Content) -> Matching {
        let mut found = Matching::default();
        self.match_into(identity, &mut found);
        found
    }

    /// As [`Class::matching`], in place of what `found` has.
    pub fn match_into(&self, identity: &Content, found: &mut Matching) {
        let sets = &identity.sets;
        let Matching {
            lists,
            rules,
            before,
        } = found;
        lists.clear();
        lists.extend(sets.iter().filter(|set| self.lists.contains_key(set)));
        rules.clear();
        rules.extend(&self.for_all);
        if !self.by_peers.is_empty() {
            rules.extend(
                sets.iter()
                    .filter_map(|set| self.by_peers.get(set))
                    .flatten(),
            );
            rules.sort_unstable();
        }
        // Doubtful rules are about pods that have not been listed.
        if identity.listed {
            rules.retain(|at| !self.rules[*at].doubtful);
        }
        let class = self.class_before();
        *before = class.map(|class| Box::new(class.matching(identity)));
    }

    /// Whether any of these rules has named ports.
    pub fn has_names(&self, matching: &Matching) -> bool {
        let mut rules = matching.rules.iter().map(|at| &self.rules[*at]);
        let before = self.class_before().zip(matching.before.as_deref());
        rules.any(|rule| !rule.ports.named.is_empty())
            || before.is_some_and(|(class, matching)| class.has_names(matching))
    }

    /// What these rules allow for a destination with these named ports. `own`: for a
    /// flow of the pod to itself, which NetworkPolicies always allow.
    pub fn allowed(&self, matching: &Matching, ports: &[NamedPort], own: bool) -> PortSet {
        let least = self.bound(Bound::Least, matching, ports, own);
        let before = match (&self.before, &matching.before) {
            (Some(Before::Everything), _) => PortSet::all(),
            (Some(Before::Rules(class)), Some(matching)) => class.allowed(matching, ports, own),
            (None | Some(Before::Nothing | Before::Rules(_)), _) => return least,
        };
        let most = self.bound(Bound::Most, matching, ports, own);
        least.union(&before.intersection(&most))
    }

    /// What these rules allow at least, or at most.
    fn bound(&self, bound: Bound, matching: &Matching, ports: &[NamedPort], own: bool) -> PortSet {
        let rules = || matching.rules.iter().map(|at| &self.rules[*at]);
        let of_tier = |tier| rules().filter(move |rule| rule.tier == tier);
        let (mut allowed, rest) = tier(bound, of_tier(Tier::Admin), ports, PortSet::all());
        if self.isolated {
            let counts = |rule: &&ClassRule| bound == Bound::Most || !rule.doubtful;
            let counting = of_tier(Tier::Network).filter(counts);
            let lists = matching
                .lists
                .iter()
                .filter_map(|list| self.lists.get(list));
            let plain = lists.chain([&self.everybody]).map(Cow::Borrowed);
            let granted = if own {
                PortSet::all()
            } else {
                PortSet::union_of(plain.chain(counting.map(|rule| rule.ports.of(ports))))
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
