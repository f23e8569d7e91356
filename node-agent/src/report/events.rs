//! The Events of the own Node and of policies that cannot be carried out. Pure.
//!
//! On the Node there is one Event for each reason. It is written when its problem has lasted
//! for [`SETTLED`], counted up when the problem comes back, and, if the problem keeps pods from
//! being served, renewed before the API server forgets it. So the number of writes is limited
//! by the number of reasons, whatever happens on the node.
//!
//! An Event on a policy is where whoever wrote it looks. All nodes with a pod that the policy
//! selects have the problem, so the Event's name follows from the policy and the text alone:
//! the first node creates it, and all others find that it exists. They do not ask at the same
//! moment: each waits for a time that follows from its name. As long as the problem lasts each
//! node tries again, at moments of its own, so that the Event comes back after the API server
//! has deleted it.
//!
//! The API server may refuse one Event and take all others: its namespace has a quota, is being
//! deleted, or a webhook refuses it. So each Event has pauses of its own after that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tweed_core::problem::Problem;
use tweed_watch::client::Failure;

use super::attempts::{Attempts, Pauses};
use super::condition::{self, SETTLED};
use super::problems::{Subject, is_outage, message};
use crate::spread::delay;

/// Minimum time between two writes of one Event.
const MIN_GAP: Duration = Duration::from_secs(60);
/// Time after which an Event that matters as long as its problem lasts is written again.
/// An API server keeps an Event for one hour by default.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// Time over which the nodes spread the first Events on a policy.
const SPREAD: Duration = Duration::from_secs(60);
/// Maximum number of policies with an Event of this node. `tweedctl status` has the others.
const MAX_POLICIES: usize = 100;

/// An Event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventWrite {
    pub subject: Subject,
    /// `TweedIsUp`, or the reason of the problem's kind.
    pub reason: &'static str,
    /// What is wrong and what to do, or that the network is available.
    pub message: String,
    /// Whether its type is `Warning`; otherwise it is `Normal`.
    pub warning: bool,
    /// Its count. `None` if this run of the agent has not written it yet.
    pub count: Option<i32>,
}

/// All Events, by what they are about and their reason.
#[derive(Debug)]
pub(super) struct EventPlan {
    node_name: String,
    series: BTreeMap<(Subject, &'static str), Series>,
    /// Attempts that failed for a reason that keeps other Events from being written too.
    attempts: Attempts,
    pub node_pauses: Pauses,
    /// Longer ones: all nodes may have the problem.
    pub policy_pauses: Pauses,
}

/// The occurrences of one problem.
#[derive(Debug, Default)]
struct Series {
    message: String,
    warning: bool,
    /// How long it must last before it is written.
    delay: Duration,
    /// Time after which it is written again for as long as it lasts.
    renew: Option<Duration>,
    /// Start of the current occurrence, if there is one.
    since: Option<Instant>,
    /// Occurrences since the last write.
    unwritten: i32,
    written: Option<Written>,
    attempts: Attempts,
}

#[derive(Debug)]
struct Written {
    at: Instant,
    message: String,
    count: i32,
}

impl EventPlan {
    /// No Events yet, of the Node of this name.
    pub(super) fn new(node_name: &str, node_pauses: Pauses) -> Self {
        let (min, max) = (Duration::from_secs(5), Duration::from_secs(5 * 60));
        Self {
            node_name: node_name.to_owned(),
            series: BTreeMap::new(),
            attempts: Attempts::default(),
            node_pauses,
            policy_pauses: Pauses::of_node(node_name, min, max),
        }
    }

    /// Takes the current problems.
    pub(super) fn observe(&mut self, problems: &[Problem], now: Instant) {
        let mut current: BTreeMap<(Subject, &'static str), Vec<&Problem>> = BTreeMap::new();
        for problem in problems {
            if let Some(subject) = Subject::of(problem) {
                let key = (subject, problem.kind.reason());
                current.entry(key).or_default().push(problem);
            }
        }
        for (key, series) in &mut self.series {
            if series.warning && !current.contains_key(key) {
                // An occurrence that was too short to be written is not counted.
                series.since = None;
                series.unwritten = 0;
            }
        }
        self.series
            .retain(|(subject, _), series| series.is_current(subject, now));
        let policies = self.series.keys().filter(|key| key.0 != Subject::Node);
        let mut room = MAX_POLICIES.saturating_sub(policies.count());
        for (key, problems) in current {
            let is_new_policy = key.0 != Subject::Node && !self.series.contains_key(&key);
            if is_new_policy && room == 0 {
                continue;
            }
            room -= usize::from(is_new_policy);
            self.observe_one(key, &problems, now);
        }
    }

    fn observe_one(&mut self, key: (Subject, &'static str), problems: &[&Problem], now: Instant) {
        let is_of_policy = key.0 != Subject::Node;
        let object = problems.first().map_or("", |problem| &problem.object);
        let spread = |over| delay(&self.node_name, object, over);
        let (delay, renew) = if is_of_policy {
            (SETTLED + spread(SPREAD), Some(RENEW / 2 + spread(RENEW)))
        } else {
            let is_outage = problems.iter().any(|problem| is_outage(problem));
            (SETTLED, is_outage.then_some(RENEW))
        };
        let series = self.series.entry(key).or_default();
        (series.delay, series.renew, series.warning) = (delay, renew, true);
        let message = message(problems);
        if is_of_policy && series.message != message {
            // Its name follows from the text: it is another Event.
            (series.since, series.written) = (None, None);
        }
        series.message = message;
        if series.since.is_none() {
            series.begin(now);
        }
    }

    /// The network has become available.
    pub(super) fn came_up(&mut self, now: Instant) {
        let key = (Subject::Node, condition::UP);
        let series = self.series.entry(key).or_default();
        condition::UP_MESSAGE.clone_into(&mut series.message);
        series.begin(now);
    }

    /// The own Node was replaced by another one, which has no Events yet.
    pub(super) fn node_replaced(&mut self) {
        self.series.retain(|_, series| series.warning);
        for ((subject, _), series) in &mut self.series {
            if *subject == Subject::Node {
                series.written = None;
            }
        }
    }

    /// The next Event that is due. One that was tried in vain leaves a turn to each other one:
    /// where there is a quota, a new Event is refused and the renewal of one is not.
    pub(super) fn due(&self, now: Instant) -> Option<EventWrite> {
        if self.attempts.at(now) > now {
            return None;
        }
        let all = self.series.iter();
        let due = all.filter_map(|(key, series)| Some((series.due_at()?, key, series)));
        let (_, (subject, reason), series) = (due.filter(|(at, ..)| *at <= now))
            .min_by_key(|(at, _, series)| (series.attempts.failed, *at))?;
        // A node may create Events on policies and not change them.
        let written = series
            .written
            .as_ref()
            .filter(|_| *subject == Subject::Node);
        Some(EventWrite {
            subject: subject.clone(),
            reason,
            message: series.message.clone(),
            warning: series.warning,
            count: written.map(|written| written.count.saturating_add(series.unwritten)),
        })
    }

    /// When the next Event is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let first = self.series.values().filter_map(Series::due_at).min();
        first.map(|at| self.attempts.at(at))
    }

    /// `event` was written and has this count at the API server.
    pub(super) fn written(&mut self, event: &EventWrite, count: i32, now: Instant) {
        self.attempts = Attempts::default();
        if let Some(series) = self.of(event) {
            series.unwritten = 0;
            series.attempts = Attempts::default();
            series.written = Some(Written {
                at: now,
                message: event.message.clone(),
                count,
            });
        }
    }

    /// `event` could not be written. `is_shown` says that the failure says something about it,
    /// and not about an API server that cannot be reached.
    pub(super) fn failed(
        &mut self,
        event: &EventWrite,
        failure: &Failure,
        is_shown: bool,
        now: Instant,
    ) {
        if failure.is_answered() && failure.is_refusal() {
            // The next one may be taken.
            self.attempts = Attempts::default();
        } else {
            self.attempts.fail(failure, self.node_pauses, now);
        }
        let pauses = match event.subject {
            Subject::Node => self.node_pauses,
            Subject::Policy { .. } => self.policy_pauses,
        };
        if is_shown && let Some(series) = self.of(event) {
            series.attempts.fail(failure, pauses, now);
            series.attempts.show(failure);
        }
    }

    /// The API server can be reached again.
    pub(super) fn try_again(&mut self) {
        self.attempts.try_again();
    }

    /// What the board shows of attempts at an Event that is still wanted: of several always
    /// the same one.
    pub(super) fn problem(&self, now: Instant) -> Option<&Problem> {
        let is_wanted = |series: &&Series| series.wanted_at().is_some_and(|at| at <= now);
        let mut wanted = self.series.values().filter(is_wanted);
        wanted.find_map(|series| series.attempts.problem())
    }

    fn of(&mut self, event: &EventWrite) -> Option<&mut Series> {
        self.series.get_mut(&(event.subject.clone(), event.reason))
    }
}

impl Series {
    fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.unwritten = self.unwritten.saturating_add(1);
    }

    /// When it is due, without regard to attempts that have failed.
    fn wanted_at(&self) -> Option<Instant> {
        let first = self.since? + self.delay;
        Some(match &self.written {
            None => first,
            Some(written) if self.unwritten > 0 || written.message != self.message => {
                first.max(written.at + MIN_GAP)
            }
            Some(written) => first.max(written.at + self.renew?),
        })
    }

    fn due_at(&self) -> Option<Instant> {
        self.wanted_at().map(|at| self.attempts.at(at))
    }

    /// Whether it lasts, or was written so recently that its count must be kept.
    fn is_current(&self, subject: &Subject, now: Instant) -> bool {
        let recent = |written: &Written| now.saturating_duration_since(written.at) < 2 * RENEW;
        let counts = *subject == Subject::Node && self.written.as_ref().is_some_and(recent);
        self.since.is_some() || counts
    }
}

#[cfg(test)]
mod tests;
