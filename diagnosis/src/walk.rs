//! What becomes of a packet in a chain of rules, whichever program made them: a walk
//! over the chain and those that it leads to. Pure but for the reading of rules.
//!
//! Of a rule it may be unknown whether the packet meets its condition. Both is followed
//! then, so that a walk gives everything that may become of the packet.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of chains to walk through, against endless work on a huge ruleset.
const MAX_CHAINS: usize = 256;
/// Maximum depth of chains that lead to each other: nf_tables allows 16.
const DEEPEST: usize = 16;

/// Everything that may become of a packet in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fates {
    accepted: bool,
    dropped: bool,
    /// It leaves at the end of the chain.
    through: bool,
    /// It gets another source, and is accepted.
    rewritten: bool,
}

impl Fates {
    const ACCEPTED: Self = Self::of(true, false, false);
    const DROPPED: Self = Self::of(false, true, false);
    const THROUGH: Self = Self::of(false, false, true);
    const REWRITTEN: Self = Self {
        rewritten: true,
        ..Self::of(false, false, false)
    };
    /// Of a chain that is not followed.
    const ANY: Self = Self::of(true, true, true);

    const fn of(accepted: bool, dropped: bool, through: bool) -> Self {
        Self {
            accepted,
            dropped,
            through,
            rewritten: false,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            accepted: self.accepted | other.accepted,
            dropped: self.dropped | other.dropped,
            through: self.through | other.through,
            rewritten: self.rewritten | other.rewritten,
        }
    }

    /// Whether the packet is certainly dropped, where the policy drops or accepts
    /// what leaves at the end.
    pub(crate) fn is_dropped(self, policy_drops: bool) -> bool {
        !self.accepted && (policy_drops || !self.through)
    }

    /// Whether the packet certainly gets another source.
    pub(crate) fn is_rewritten(self) -> bool {
        self == Self::REWRITTEN
    }
}

/// What a rule does with a packet that meets its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<Chain> {
    /// It is accepted.
    Accept,
    /// It is dropped or rejected.
    Drop,
    /// It gets another source, and is accepted.
    Rewrite,
    /// Back to the chain that this one was called from.
    Return,
    /// Through that chain, and back.
    Jump(Chain),
    /// Through that chain, and not back.
    Goto(Chain),
}

/// A rule that the packet meets, or may meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule<Chain> {
    /// What it does.
    pub(crate) step: Step<Chain>,
    /// Whether the packet certainly meets it.
    pub(crate) certain: bool,
}

/// Where rules are read from.
pub(crate) trait Chains {
    /// What a chain is called by.
    type Name: Clone + Ord;
    /// Why a chain cannot be read.
    type Error;

    /// The rules of a chain that the packet meets or may meet, in their order.
    fn rules(&mut self, chain: &Self::Name) -> Result<Vec<Rule<Self::Name>>, Self::Error>;
}

/// A walk of one packet through the chains of one table.
pub(crate) struct Walk<C: Chains> {
    chains: C,
    /// What becomes of it in the chains that it left again.
    known: BTreeMap<C::Name, Fates>,
    /// Every chain that it has come to.
    pub(crate) entered: BTreeSet<C::Name>,
}

impl<C: Chains> Walk<C> {
    /// A walk through `chains`.
    pub(crate) fn new(chains: C) -> Self {
        Self {
            chains,
            known: BTreeMap::new(),
            entered: BTreeSet::new(),
        }
    }

    /// What may become of the packet in `chain`.
    pub(crate) fn enter(&mut self, chain: &C::Name) -> Result<Fates, C::Error> {
        self.follow(chain, 0)
    }

    fn follow(&mut self, chain: &C::Name, depth: usize) -> Result<Fates, C::Error> {
        if let Some(fates) = self.known.get(chain) {
            return Ok(*fates);
        }
        if self.entered.len() >= MAX_CHAINS || depth > DEEPEST {
            return Ok(Fates::ANY);
        }
        self.entered.insert(chain.clone());
        let mut fates = Fates::default();
        let mut ended = false;
        for Rule { step, certain } in self.chains.rules(chain)? {
            let (met, goes_on) = match &step {
                Step::Accept => (Fates::ACCEPTED, false),
                Step::Drop => (Fates::DROPPED, false),
                Step::Rewrite => (Fates::REWRITTEN, false),
                Step::Return => (Fates::THROUGH, false),
                Step::Goto(next) => (self.follow(next, depth + 1)?, false),
                Step::Jump(next) => {
                    let met = self.follow(next, depth + 1)?;
                    let through = false;
                    (Fates { through, ..met }, met.through)
                }
            };
            fates = fates.or(met);
            if certain && !goes_on {
                ended = true;
                break;
            }
        }
        if !ended {
            fates = fates.or(Fates::THROUGH);
        }
        self.known.insert(chain.clone(), fates);
        Ok(fates)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Chains of rules as words: `jump a`, `maybe accept`.
    struct Written(&'static [(&'static str, &'static [&'static str])]);

    impl Chains for Written {
        type Name = &'static str;
        type Error = Infallible;

        fn rules(&mut self, chain: &&'static str) -> Result<Vec<Rule<&'static str>>, Infallible> {
            let rules = self.0.iter().find(|(name, _)| name == chain).unwrap().1;
            let rule = |text: &&'static str| {
                let sure = text.strip_prefix("maybe ");
                let step = match *sure.unwrap_or(text).split(' ').collect::<Vec<_>>() {
                    ["accept"] => Step::Accept,
                    ["drop"] => Step::Drop,
                    ["rewrite"] => Step::Rewrite,
                    ["return"] => Step::Return,
                    ["jump", chain] => Step::Jump(chain),
                    ["goto", chain] => Step::Goto(chain),
                    _ => panic!("{text}"),
                };
                let certain = sure.is_none();
                Rule { step, certain }
            };
            Ok(rules.iter().map(rule).collect())
        }
    }

    #[track_caller]
    fn becomes(
        chains: &'static [(&'static str, &'static [&'static str])],
        (accepted, dropped, through): (bool, bool, bool),
    ) {
        let Ok(fates) = Walk::new(Written(chains)).enter(&"base");
        assert_eq!(fates, Fates::of(accepted, dropped, through));
    }

    #[test]
    fn the_first_certain_rule_decides() {
        becomes(&[("base", &[])], (false, false, true));
        becomes(&[("base", &["accept", "drop"])], (true, false, false));
        becomes(&[("base", &["return", "drop"])], (false, false, true));
        becomes(&[("base", &["maybe accept", "drop"])], (true, true, false));
        becomes(&[("base", &["maybe drop"])], (false, true, true));
    }

    #[test]
    fn a_jump_comes_back_and_a_goto_does_not() {
        becomes(
            &[("base", &["jump a", "drop"]), ("a", &["return", "accept"])],
            (false, true, false),
        );
        becomes(
            &[("base", &["goto a", "drop"]), ("a", &["return", "accept"])],
            (false, false, true),
        );
        becomes(
            &[
                ("base", &["jump a", "drop"]),
                ("a", &["goto b", "drop"]),
                ("b", &[]),
            ],
            (false, true, false),
        );
        becomes(
            &[("base", &["maybe jump a", "drop"]), ("a", &["accept"])],
            (true, true, false),
        );
        becomes(
            &[
                ("base", &["jump a", "drop"]),
                ("a", &["maybe return", "accept"]),
            ],
            (true, true, false),
        );
    }

    #[test]
    fn only_what_certainly_gets_another_source_does() {
        for (rules, is_rewritten) in [
            (&["rewrite"][..], true),
            (&["maybe rewrite", "rewrite"], true),
            (&["maybe rewrite"], false),
            (&["maybe accept", "rewrite"], false),
            (&["accept", "rewrite"], false),
        ] {
            let chains: &'static _ = Box::leak(Box::new([("base", rules)]));
            let Ok(fates) = Walk::new(Written(chains)).enter(&"base");
            assert_eq!(fates.is_rewritten(), is_rewritten, "{rules:?}");
        }
    }

    #[test]
    fn a_loop_or_too_deep_a_chain_is_not_followed() {
        becomes(&[("base", &["jump base", "drop"])], (true, true, false));
    }

    #[test]
    fn only_what_is_certainly_dropped_is() {
        assert!(Fates::DROPPED.is_dropped(false));
        assert!(Fates::THROUGH.is_dropped(true));
        assert!(!Fates::THROUGH.is_dropped(false));
        assert!(!Fates::ANY.is_dropped(true));
        assert!(Fates::DROPPED.or(Fates::THROUGH).is_dropped(true));
    }
}
