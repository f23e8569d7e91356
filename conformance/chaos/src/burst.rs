//! What happens, as a pure function of a seed: bursts of actions, and selections of them.
//!
//! A burst depends on the seed and its number only, not on the bursts before it. So any
//! subset of bursts, or of their actions, can be repeated by its numbers: that is how a
//! failing run is made shorter.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::random::Random;

/// Maximum number of actions in a burst: enough that faults meet, few enough that a
/// failure can be explained.
const MAX_ACTIONS: usize = 6;

/// Maximum pause after an action, in milliseconds: longer than the agent needs for a
/// repair, so that some actions meet a repaired node and some a broken one.
const MAX_PAUSE: usize = 400;

/// An action, before it is known which nodes and pods there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Its place in the burst.
    pub number: usize,
    /// Index into the table of actions.
    pub kind: usize,
    /// Chooses the node, the pod, and whatever else the action has to choose.
    pub choices: [u64; 3],
    /// Time until the next action.
    pub pause: Duration,
}

/// The actions of burst `number`. `weights` says how often each kind of action is chosen.
pub fn burst(seed: u64, number: u64, weights: &[usize]) -> Vec<Action> {
    let mut random = Random::new(seed, number);
    let count = 1 + random.below(MAX_ACTIONS);
    (0..count)
        .map(|number| {
            let kind = weighted(random.next(), weights);
            let choices = [random.next(), random.next(), random.next()];
            // Half of the actions follow each other at once.
            let pause = match random.below(2) {
                0 => 0,
                _ => random.below(MAX_PAUSE),
            };
            Action {
                number,
                kind,
                choices,
                pause: Duration::from_millis(pause.try_into().unwrap_or_default()),
            }
        })
        .collect()
}

fn weighted(number: u64, weights: &[usize]) -> usize {
    let mut rest = crate::random::pick(number, weights.iter().sum());
    for (index, weight) in weights.iter().enumerate() {
        match rest.checked_sub(*weight) {
            Some(less) => rest = less,
            None => return index,
        }
    }
    0
}

/// A burst, or one action of it, as `12` or `12.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The burst.
    pub burst: u64,
    /// The action; `None` for all of the burst.
    pub action: Option<usize>,
}

impl Step {
    /// All of a burst.
    pub fn burst(burst: u64) -> Self {
        let action = None;
        Self { burst, action }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Some(action) => write!(f, "{}.{action}", self.burst),
            None => write!(f, "{}", self.burst),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |_| format!("{text:?} is neither a burst (12) nor an action of one (12.3)");
        let (number, action) = match text.split_once('.') {
            Some((number, action)) => (number, Some(action.parse().map_err(invalid)?)),
            None => (text, None),
        };
        let burst = number.parse().map_err(invalid)?;
        Ok(Self { burst, action })
    }
}

/// The bursts that a selection names, in its order, each with its selected actions.
pub fn selected(seed: u64, steps: &[Step], weights: &[usize]) -> Vec<(u64, Vec<Action>)> {
    let mut bursts: Vec<(u64, Vec<Action>)> = Vec::new();
    for step in steps {
        let actions = burst(seed, step.burst, weights);
        let wanted = actions
            .into_iter()
            .filter(|action| step.action.is_none_or(|number| number == action.number));
        match bursts.last_mut().filter(|last| last.0 == step.burst) {
            Some((_, collected)) => collected.extend(wanted),
            None => bursts.push((step.burst, wanted.collect())),
        }
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: [usize; 4] = [1, 0, 5, 2];

    #[test]
    fn the_same_seed_gives_the_same_actions() {
        for number in 0..50 {
            assert_eq!(burst(3, number, &WEIGHTS), burst(3, number, &WEIGHTS));
        }
        assert_ne!(burst(3, 1, &WEIGHTS), burst(4, 1, &WEIGHTS));
        assert_ne!(burst(3, 1, &WEIGHTS), burst(3, 2, &WEIGHTS));
    }

    #[test]
    fn kinds_occur_as_often_as_their_weights_say() {
        let mut seen = [0; WEIGHTS.len()];
        for number in 0..1000 {
            for action in burst(9, number, &WEIGHTS) {
                seen[action.kind] += 1;
            }
        }
        assert_eq!(seen[1], 0, "{seen:?}");
        assert!(
            seen[2] > seen[3] && seen[3] > seen[0] && seen[0] > 0,
            "{seen:?}"
        );
    }

    #[test]
    fn a_selection_has_the_same_actions_as_the_whole_run() {
        let seed = 5;
        let long = (0..)
            .find(|number| burst(seed, *number, &WEIGHTS).len() > 3)
            .unwrap_or_default();
        let whole = burst(seed, long, &WEIGHTS);
        let texts = [
            format!("{long}.1"),
            format!("{long}.3"),
            (long + 1).to_string(),
        ];
        let steps: Vec<Step> = texts.iter().map(|s| s.parse().unwrap()).collect();
        assert_eq!(
            selected(seed, &steps, &WEIGHTS),
            [
                (long, vec![whole[1].clone(), whole[3].clone()]),
                (long + 1, burst(seed, long + 1, &WEIGHTS)),
            ]
        );
    }

    #[test]
    fn a_step_is_read_as_it_is_written() {
        for text in ["12", "12.3", "0.0"] {
            let step: Step = text.parse().unwrap();
            assert_eq!(step.to_string(), text);
        }
        for text in ["", ".", "1.", ".1", "1.2.3", "-1", "x"] {
            assert!(text.parse::<Step>().is_err(), "{text}");
        }
    }
}
