//! Events on policies that cannot be carried out.
//!
//! The Event is on the policy, where whoever wrote it looks. Only nodes with a pod that
//! the policy selects have the problem; but these may be all, and each would write an
//! Event of its own. So its name follows from the policy and the text alone, which is
//! the same on every node: the first node creates it, and all others find that it
//! exists. They do not ask at the same moment: each waits for a time that follows from
//! its name. As long as the problem lasts each node tries again every half hour, so that
//! the Event comes back after the API server has deleted it. Nodes may create Events in
//! the namespaces of policies, and not change them.

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
            let known = self.series.get(object);
            if known.is_some_and(|series| series.event == event)
                || (known.is_none() && self.series.len() >= MAX_POLICIES)
            {
                continue;
            }
            let due_at = now + SETTLED + delay(node, object, SPREAD);
            let series = Series { event, due_at };
            self.series.insert(object.to_owned(), series);
        }
    }

    /// The next Event that is due.
    pub fn due(&self, now: Instant) -> Option<PolicyEvent> {
        let mut series = self.series.values();
        let due = series.find(|series| series.due_at <= now)?;
        Some(due.event.clone())
    }

    /// When the next Event is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.series.values().map(|series| series.due_at).min()
    }

    /// `event` exists at the API server, or its policy does not.
    pub fn written(&mut self, event: &PolicyEvent, now: Instant) {
        for series in self.series.values_mut() {
            if series.event == *event {
                series.due_at = now + RENEW;
            }
        }
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
        assert_eq!(events.due_at(), Some(later + RENEW));
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
        for _ in 0..5 {
            assert_eq!(names(&mut events, now), ["NetworkPolicy shop/db"]);
            assert_eq!(events.due(now + RENEW - Duration::from_secs(1)), None);
            now += RENEW;
            events.observe(&problems, "n1", now);
        }
        events.observe(&[], "n1", now);
        assert_eq!(events.due_at(), None);
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
