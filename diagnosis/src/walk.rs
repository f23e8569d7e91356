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

/// What becomes of a packet in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It is accepted.
    Accepted,
    /// It is dropped or rejected.
    Dropped,
    /// It gets another source, and is accepted.
    Rewritten,
    /// It goes back to the chain that this one was called from, as at its end.
    Returned,
}

/// Everything that may become of it.
pub(crate) type Outcomes = BTreeSet<Outcome>;

/// Whether the packet is certainly dropped, where the policy drops or accepts what leaves at
/// the end.
pub(crate) fn is_dropped(outcomes: &Outcomes, policy_drops: bool) -> bool {
    !outcomes.contains(&Outcome::Accepted)
        && (policy_drops || !outcomes.contains(&Outcome::Returned))
}

/// Whether the packet certainly gets another source.
pub(crate) fn is_rewritten(outcomes: &Outcomes) -> bool {
    outcomes.iter().eq(&[Outcome::Rewritten])
}

/// What a rule does with a packet that meets its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<Chain> {
    /// This becomes of it.
    End(Outcome),
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

/// A walk of one packet through the chains of one table.
pub(crate) struct Walk<Name, Read> {
    /// Reads the rules of a chain that the packet meets or may meet, in their order.
    read: Read,
    /// What becomes of it in the chains that it left again.
    known: BTreeMap<Name, Outcomes>,
    /// Every chain that it has come to.
    pub(crate) entered: BTreeSet<Name>,
}

impl<Name, Read, E> Walk<Name, Read>
where
    Name: Clone + Ord,
    Read: FnMut(&Name) -> Result<Vec<Rule<Name>>, E>,
{
    /// A walk through the chains whose rules are read so.
    pub(crate) fn new(read: Read) -> Self {
        Self {
            read,
            known: BTreeMap::new(),
            entered: BTreeSet::new(),
        }
    }

    /// What may become of the packet in `chain`.
    pub(crate) fn enter(&mut self, chain: &Name) -> Result<Outcomes, E> {
        self.follow(chain, 0)
    }

    fn follow(&mut self, chain: &Name, depth: usize) -> Result<Outcomes, E> {
        if let Some(outcomes) = self.known.get(chain) {
            return Ok(outcomes.clone());
        }
        if self.entered.len() >= MAX_CHAINS || depth > DEEPEST {
            // Of a chain that is not followed.
            return Ok([Outcome::Accepted, Outcome::Dropped, Outcome::Returned].into());
        }
        self.entered.insert(chain.clone());
        let mut outcomes = Outcomes::new();
        let mut ended = false;
        for Rule { step, certain } in (self.read)(chain)? {
            let mut met = match &step {
                Step::End(outcome) => Outcomes::from([*outcome]),
                Step::Goto(next) | Step::Jump(next) => self.follow(next, depth + 1)?,
            };
            let goes_on = matches!(step, Step::Jump(_)) && met.remove(&Outcome::Returned);
            outcomes.append(&mut met);
            if certain && !goes_on {
                ended = true;
                break;
            }
        }
        if !ended {
            outcomes.insert(Outcome::Returned);
        }
        self.known.insert(chain.clone(), outcomes.clone());
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Chains of rules as words: `jump a`, `maybe accept`.
    type Written = &'static [(&'static str, &'static [&'static str])];

    fn walk(chains: Written) -> Outcomes {
        let read = |chain: &&'static str| {
            let rules = chains.iter().find(|(name, _)| name == chain).unwrap().1;
            let rule = |text: &&'static str| {
                let sure = text.strip_prefix("maybe ");
                let step = match *sure.unwrap_or(text).split(' ').collect::<Vec<_>>() {
                    ["accept"] => Step::End(Outcome::Accepted),
                    ["drop"] => Step::End(Outcome::Dropped),
                    ["rewrite"] => Step::End(Outcome::Rewritten),
                    ["return"] => Step::End(Outcome::Returned),
                    ["jump", chain] => Step::Jump(chain),
                    ["goto", chain] => Step::Goto(chain),
                    _ => panic!("{text}"),
                };
                let certain = sure.is_none();
                Rule { step, certain }
            };
            Ok::<_, Infallible>(rules.iter().map(rule).collect())
        };
        let Ok(outcomes) = Walk::new(read).enter(&"base");
        outcomes
    }

    #[track_caller]
    fn becomes(chains: Written, (accepted, dropped, returned): (bool, bool, bool)) {
        let outcomes = walk(chains);
        let all = [
            (Outcome::Accepted, accepted),
            (Outcome::Dropped, dropped),
            (Outcome::Returned, returned),
        ];
        let expected = all.iter().filter(|(_, is_one)| *is_one);
        assert!(
            outcomes.iter().eq(expected.map(|(outcome, _)| outcome)),
            "{outcomes:?}"
        );
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
            assert_eq!(
                super::is_rewritten(&walk(chains)),
                is_rewritten,
                "{rules:?}"
            );
        }
    }

    #[test]
    fn a_loop_or_too_deep_a_chain_is_not_followed() {
        becomes(&[("base", &["jump base", "drop"])], (true, true, false));
    }

    #[test]
    fn only_what_is_certainly_dropped_is() {
        for (outcomes, policy_drops, expected) in [
            (&[Outcome::Dropped][..], false, true),
            (&[Outcome::Returned], true, true),
            (&[Outcome::Returned], false, false),
            (
                &[Outcome::Accepted, Outcome::Dropped, Outcome::Returned],
                true,
                false,
            ),
            (&[Outcome::Dropped, Outcome::Returned], true, true),
        ] {
            assert_eq!(
                is_dropped(&outcomes.iter().copied().collect(), policy_drops),
                expected,
                "{outcomes:?}"
            );
        }
    }
}
