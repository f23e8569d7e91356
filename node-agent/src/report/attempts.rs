//! Attempts at a write that fail: how long the next one waits, and what the board shows.

use std::time::{Duration, Instant};

use tweed_core::problem::{Problem, ProblemKind};
use tweed_watch::client::Failure;

use crate::spread::delay;

/// How many attempts in a row must fail before that is shown, if none is a refusal: it takes
/// a minute or two. An error of the server's own may be that of a webhook, and stay.
pub(super) const LASTING: u32 = 6;
/// The cure of a failure that lasts and is no refusal.
const LASTING_CURE: &str = "mend what it names, such as a webhook for Nodes or Events that \
    cannot be reached; the agent tries again by itself, and the network does not depend on it";

/// Pauses after attempts that fail: each is twice the one before, up to the maximum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    pub min: Duration,
    pub max: Duration,
}

/// The attempts at one write since it last succeeded.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How many have failed.
    pub failed: u32,
    not_before: Option<Instant>,
    problem: Option<Problem>,
}

impl Pauses {
    /// Pauses from `min` to `max`, and up to twice as long: nodes whose attempts fail at the
    /// same moment do not try again at the same moment.
    pub(super) fn of_node(node: &str, min: Duration, max: Duration) -> Self {
        let spread = |pause| pause + delay(node, "pause", pause);
        Self {
            min: spread(min),
            max: spread(max),
        }
    }
}

impl Attempts {
    /// When a write that is due at `due` may be tried.
    pub(super) fn at(&self, due: Instant) -> Instant {
        self.not_before.map_or(due, |at| at.max(due))
    }

    /// An attempt has failed.
    pub(super) fn fail(&mut self, failure: &Failure, pauses: Pauses, now: Instant) {
        tracing::debug!(%failure, "cannot write to the API server");
        let doubled = 2_u32.saturating_pow(self.failed);
        let pause = pauses.max.min(pauses.min.saturating_mul(doubled));
        self.not_before = Some(now + failure.pause(pause));
        self.failed = self.failed.saturating_add(1);
    }

    /// The board shows that the last attempt has failed like this, if it is a refusal or lasts.
    pub(super) fn show(&mut self, failure: &Failure) {
        let why = format!("the state of this node cannot be reported: {failure}");
        let problem = Problem::new(ProblemKind::NotReported, "Kubernetes", why);
        if failure.is_refusal() {
            self.problem = Some(problem);
        } else if self.failed >= LASTING {
            self.problem = Some(problem.with_cure(LASTING_CURE));
        }
    }

    /// What the board shows of them.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// The next attempt is due at once: the API server can be reached again.
    pub(super) fn try_again(&mut self) {
        (self.failed, self.not_before) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_the_one_before_up_to_a_maximum() {
        let (min, max) = (Duration::from_secs(5), Duration::from_secs(300));
        let failure = Failure::Silent {
            url: "https://api".to_owned(),
            seconds: 10,
        };
        let mut attempts = Attempts::default();
        let now = Instant::now();
        let pauses = (0..8).map(|_| {
            attempts.fail(&failure, Pauses { min, max }, now);
            (attempts.at(now) - now).as_secs()
        });
        assert_eq!(
            pauses.collect::<Vec<_>>(),
            [5, 10, 20, 40, 80, 160, 300, 300]
        );
        for node in 0..100 {
            let spread = Pauses::of_node(&format!("n{node}"), min, max);
            assert!((min..min * 2).contains(&spread.min), "{spread:?}");
            assert!((max..max * 2).contains(&spread.max), "{spread:?}");
        }
    }

    #[test]
    fn a_server_that_names_a_time_is_not_asked_before() {
        let failure = Failure::Answered {
            url: "https://api".to_owned(),
            code: 429,
            message: "too many requests".to_owned(),
            retry_after: Some(Duration::from_secs(30)),
        };
        let now = Instant::now();
        let mut attempts = Attempts::default();
        let second = Duration::from_secs(1);
        let pauses = Pauses {
            min: second,
            max: second,
        };
        attempts.fail(&failure, pauses, now);
        assert_eq!(attempts.at(now), now + Duration::from_secs(31));
    }
}
