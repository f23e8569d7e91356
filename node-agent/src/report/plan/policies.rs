//! Events on policies that cannot be carried out.
//!
//! The Event is on the policy, where whoever wrote it looks. Only nodes with a pod that
//! the policy selects have the problem; but these may be all, and each would write an
//! Event of its own. So its name follows from the policy and the text alone, which is
//! the same on every node: the first node creates it, and all others find that it
//! exists. They do not ask at the same moment: each waits for a time that follows from
//! its name. As long as the problem lasts each node tries again every half hour, so that
//! the Event comes back after the API server has deleted it; the nodes spread these
//! attempts over the half hour. Nodes may create Events in the namespaces of policies, and
//! not change them.
//!
//! The API server may refuse the Event of one policy and take those of all others: its
//! namespace has a quota, is being deleted, or a webhook refuses it. So each Event has
//! pauses of its own after that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tweed_core::problem::{Problem, Scope};

use super::problems::message;
use super::{RENEW, SETTLED};
use crate::spread::delay;

/// Time over which the nodes spread their writes.
const SPREAD: Duration = Duration::from_secs(60);
/// Maximum number of policies with an Event of this node. The others are in `/readyz`.
const MAX_POLICIES: usize = 100;
/// Pauses before an Event that the API server has refused is tried again: each is twice
/// the one before, up to the maximum. They have no random part, since nodes are spread
/// already.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(10 * 60);

/// An Event to be written on a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEvent {
    /// `NetworkPolicy` or `ClusterNetworkPolicy`.
    pub kind: String,
    /// Its namespace; empty of a ClusterNetworkPolicy.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The reason of the problem's kind.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// The Events on policies, by the problem's object.
#[derive(Debug, Default)]
pub struct PolicyEvents {
    series: BTreeMap<String, Series>,
}

#[derive(Debug)]
struct Series {
    event: PolicyEvent,
    due_at: Instant,
    /// Time from the next write to the one after it: the first is the node's own, and later
    /// ones are [`RENEW`].
    renew_after: Duration,
    /// What the API server answered in place of taking the Event.
    refusal: Option<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    /// None if it may only be overloaded.
    message: Option<String>,
    /// The pause after it.
    pause: Duration,
}

impl PolicyEvents {
    /// Takes the current problems, as the Node of this name has them.
    pub fn observe(&mut self, problems: &[Problem], node: &str, now: Instant) {
        let policies = problems.iter().filter(|p| p.kind.scope() == Scope::Policy);
        let current: BTreeMap<&str, &Problem> = policies
            .map(|problem| (problem.object.as_str(), problem))
            .collect();
        self.series
            .retain(|object, _| current.contains_key(object.as_str()));
        for (object, problem) in current {
            let Some(event) = PolicyEvent::of(problem) else {
                continue;
            };
            let due_at = now + SETTLED + delay(node, object, SPREAD);
            let renew_after = RENEW / 2 + delay(node, object, RENEW);
            let is_full = self.series.len() >= MAX_POLICIES;
            match self.series.get_mut(object) {
                Some(known) if known.event == event => {}
                // What refused the text before may refuse this one too.
                Some(known) => {
                    (known.event, known.due_at) = (event, due_at);
                    known.renew_after = renew_after;
                }
                None if is_full => {}
                None => {
                    let series = Series {
                        event,
                        due_at,
                        renew_after,
                        refusal: None,
                    };
                    self.series.insert(object.to_owned(), series);
                }
            }
        }
    }

    /// The next Event that is due: the one that has waited longest, so that those that are
    /// refused again and again leave a turn to each other one.
    pub fn due(&self, now: Instant) -> Option<PolicyEvent> {
        let due = self.series.values().filter(|series| series.due_at <= now);
        let next = due.min_by_key(|series| series.due_at)?;
        Some(next.event.clone())
    }

    /// When the next Event is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.series.values().map(|series| series.due_at).min()
    }

    /// `event` exists at the API server, or its policy does not.
    pub fn written(&mut self, event: &PolicyEvent, now: Instant) {
        for series in self.of(event) {
            series.due_at = now + std::mem::replace(&mut series.renew_after, RENEW);
            series.refusal = None;
        }
    }

    /// The API server has answered and not taken `event`, which gives way to the others
    /// for some time. `message` is what it answered, if that is a refusal.
    pub fn refused(&mut self, event: &PolicyEvent, message: Option<&str>, now: Instant) {
        for series in self.of(event) {
            let before = series.refusal.take();
            let pause = before.map_or(MIN_PAUSE, |refusal| MAX_PAUSE.min(refusal.pause * 2));
            series.due_at = now + pause;
            series.refusal = Some(Refusal {
                message: message.map(str::to_owned),
                pause,
            });
        }
    }

    /// Why an Event was refused when it was last tried; if several were, that of the
    /// policy whose name is first, so that the answer stays the same.
    pub fn refusal(&self) -> Option<&str> {
        let refusals = self.series.values().filter_map(|one| one.refusal.as_ref());
        let mut messages = refusals.filter_map(|refusal| refusal.message.as_deref());
        messages.next()
    }

    fn of(&mut self, event: &PolicyEvent) -> impl Iterator<Item = &mut Series> {
        let series = self.series.values_mut();
        series.filter(move |series| series.event == *event)
    }
}

impl PolicyEvent {
    /// None if the problem does not name a policy.
    fn of(problem: &Problem) -> Option<Self> {
        let (kind, name) = problem.object.split_once(' ')?;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        Some(Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            reason: problem.kind.reason().to_owned(),
            message: message(&[problem]),
        })
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::problem::ProblemKind;

    use super::*;

    fn problem(object: &str, message: &str) -> Problem {
        Problem::new(ProblemKind::PolicyUnsupported, object, message)
    }

    fn names(events: &mut PolicyEvents, now: Instant) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(event) = events.due(now) {
            events.written(&event, now);
            names.push(format!("{} {}/{}", event.kind, event.namespace, event.name));
        }
        names.sort();
        names
    }

    #[test]
    fn each_policy_has_one_event_for_each_text() {
        let start = Instant::now();
        let later = start + SETTLED + SPREAD;
        let mut events = PolicyEvents::default();
        let mut problems = vec![
            problem("NetworkPolicy shop/db", "a"),
            problem("ClusterNetworkPolicy admin", "b"),
            Problem::new(ProblemKind::NoPodCidr, "n1", "none"),
        ];
        events.observe(&problems, "n1", start);
        assert!(events.due(start).is_none() && events.due_at().is_some());
        events.observe(&problems, "n1", later);
        let both = ["ClusterNetworkPolicy /admin", "NetworkPolicy shop/db"];
        assert_eq!(names(&mut events, later), both);
        events.observe(&problems, "n1", later);
        assert!(events.due_at() >= Some(later + RENEW / 2));
        problems[0] = problem("NetworkPolicy shop/db", "c");
        events.observe(&problems, "n1", later);
        assert_eq!(names(&mut events, later + SETTLED + SPREAD), both[1..]);
    }

    /// An API server deletes an Event after an hour.
    #[test]
    fn the_event_of_a_problem_that_lasts_is_written_again() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        let problems = [problem("NetworkPolicy shop/db", "a")];
        let mut now = start + SETTLED + SPREAD;
        events.observe(&problems, "n1", start);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            assert_eq!(names(&mut events, now), ["NetworkPolicy shop/db"]);
            let next = events.due_at().unwrap();
            pauses.push(next - now);
            now = next;
            events.observe(&problems, "n1", now);
        }
        assert!((RENEW / 2..RENEW * 3 / 2).contains(&pauses[0]));
        assert_eq!(pauses[1..], [RENEW; 4]);
        events.observe(&[], "n1", now);
        assert_eq!(events.due_at(), None);
    }

    /// All of them have the problem at the same moment, and another text of it.
    #[test]
    fn the_nodes_spread_the_later_attempts_over_the_half_hour() {
        let start = Instant::now();
        let third = |node: usize| {
            let mut events = PolicyEvents::default();
            for text in ["a", "b"] {
                let problems = [problem("NetworkPolicy shop/db", text)];
                events.observe(&problems, &format!("n{node}"), start);
                let now = events.due_at().unwrap();
                assert_eq!(names(&mut events, now).len(), 1);
            }
            let now = events.due_at().unwrap();
            assert_eq!(names(&mut events, now).len(), 1);
            events.due_at().unwrap()
        };
        let mut attempts: Vec<Instant> = (0..1000).map(third).collect();
        attempts.sort();
        let of_a_minute = |first: &Instant| {
            let minute = *first..*first + Duration::from_secs(60);
            attempts.iter().filter(|at| minute.contains(*at)).count()
        };
        let most = attempts.iter().map(of_a_minute).max().unwrap();
        assert!(most < 80, "{most} of 1000 in a minute");
    }

    #[test]
    fn a_problem_that_ends_early_is_not_written() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        events.observe(&[problem("NetworkPolicy shop/db", "a")], "n1", start);
        events.observe(&[], "n1", start);
        assert_eq!(events.due_at(), None);
    }

    #[test]
    fn an_event_that_is_refused_keeps_no_other_from_being_written() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        let mut problems = vec![
            problem("NetworkPolicy full/a", "a"),
            problem("NetworkPolicy shop/db", "a"),
        ];
        events.observe(&problems, "n1", start);
        let mut now = start + SETTLED + SPREAD;
        let mut turns: Vec<PolicyEvent> = Vec::new();
        while let Some(next) = events.due(now) {
            match &*next.namespace {
                "full" => events.refused(&next, Some("exceeded quota"), now),
                _ => events.written(&next, now),
            }
            turns.push(next);
        }
        assert_eq!(turns.len(), 2, "{turns:?}");
        let first = turns.into_iter().find(|turn| turn.namespace == "full");
        let first = first.unwrap();
        let mut pauses = Vec::new();
        while pauses.len() < 8 {
            let next = events.due_at().unwrap();
            match events.due(next).unwrap() {
                event if event == first => {}
                other => {
                    events.written(&other, next);
                    continue;
                }
            }
            pauses.push((next - now).as_secs());
            now = next;
            events.refused(&first, Some("exceeded quota"), now);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600]);
        assert_eq!(events.refusal(), Some("exceeded quota"));

        // Another text has no shorter pauses, and one that is taken ends them.
        problems[0] = problem("NetworkPolicy full/a", "b");
        events.observe(&problems, "n1", now);
        assert_eq!(events.refusal(), Some("exceeded quota"));
        now += SETTLED + SPREAD;
        assert_eq!(names(&mut events, now), ["NetworkPolicy full/a"]);
        assert_eq!(events.refusal(), None);
    }

    /// The webhook of a namespace cannot be reached: each refusal of it delays all writes.
    #[test]
    fn many_events_that_are_refused_leave_a_turn_to_another_one() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        let refused = (0..10).map(|number| problem(&format!("NetworkPolicy full/{number}"), "a"));
        let problems: Vec<Problem> = refused
            .chain([problem("NetworkPolicy shop/db", "a")])
            .collect();
        events.observe(&problems, "n1", start);
        let mut now = start + SETTLED + SPREAD;
        for _ in 0..20 {
            let next = events.due(now).unwrap();
            if next.namespace == "shop" {
                return;
            }
            events.refused(&next, None, now);
            now += Duration::from_secs(90);
        }
        panic!("it never had its turn");
    }

    #[test]
    fn a_refusal_is_forgotten_with_its_policy() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        events.observe(&[problem("NetworkPolicy shop/db", "a")], "n1", start);
        let event = events.due(start + SETTLED + SPREAD).unwrap();
        events.refused(&event, Some("no"), start);
        assert_eq!(events.refusal(), Some("no"));
        events.observe(&[], "n1", start);
        assert_eq!(events.refusal(), None);
    }

    #[test]
    fn the_number_of_events_is_bounded() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        let name = |n| problem(&format!("NetworkPolicy shop/p{n}"), "a");
        let many: Vec<Problem> = (0..1000).map(name).collect();
        events.observe(&many, "n1", start);
        let later = start + SETTLED + SPREAD;
        assert_eq!(names(&mut events, later).len(), MAX_POLICIES);
    }
}
