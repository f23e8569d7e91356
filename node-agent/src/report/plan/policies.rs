//! Events on policies that cannot be carried out.
//!
//! The Event is on the policy, where whoever wrote it looks. Only nodes with a pod that
//! the policy selects have the problem; but these may be all, and each would write an
//! Event of its own. So its name follows from the policy and the text alone, which is
//! the same on every node: the first node creates it, and all others find that it
//! exists. They do not ask at the same moment: each waits for a time that follows from
//! its name.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tweed_core::problem::{Problem, Scope};

use super::SETTLED;
use super::problems::message;

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
    is_written: bool,
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
            let due_at = now + SETTLED + delay(node, object);
            let is_written = false;
            let series = Series {
                event,
                due_at,
                is_written,
            };
            self.series.insert(object.to_owned(), series);
        }
    }

    /// The next Event that is due.
    pub fn due(&self, now: Instant) -> Option<PolicyEvent> {
        let mut unwritten = self.unwritten();
        let due = unwritten.find(|series| series.due_at <= now)?;
        Some(due.event.clone())
    }

    /// When the next Event is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.unwritten().map(|series| series.due_at).min()
    }

    /// `event` exists at the API server, or its policy does not.
    pub fn written(&mut self, event: &PolicyEvent) {
        for series in self.series.values_mut() {
            series.is_written |= series.event == *event;
        }
    }

    fn unwritten(&self) -> impl Iterator<Item = &Series> {
        self.series.values().filter(|series| !series.is_written)
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

/// The time that this node waits before it writes the Event of this policy.
fn delay(node: &str, object: &str) -> Duration {
    let hash = Sha256::new()
        .chain_update(node)
        .chain_update([0])
        .chain_update(object)
        .finalize();
    let share = hash.first().copied().map_or(0, u32::from);
    SPREAD * share / 256
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
            events.written(&event);
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
        assert_eq!(events.due_at(), None);
        problems[0] = problem("NetworkPolicy shop/db", "c");
        events.observe(&problems, "n1", later);
        assert_eq!(names(&mut events, later + SETTLED + SPREAD), both[1..]);
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
    fn the_number_of_events_is_bounded_and_nodes_spread_them() {
        let start = Instant::now();
        let mut events = PolicyEvents::default();
        let name = |n| problem(&format!("NetworkPolicy shop/p{n}"), "a");
        let many: Vec<Problem> = (0..1000).map(name).collect();
        events.observe(&many, "n1", start);
        let later = start + SETTLED + SPREAD;
        assert_eq!(names(&mut events, later).len(), MAX_POLICIES);
        let nodes = (0..100).map(|n| delay(&format!("n{n}"), "ClusterNetworkPolicy a"));
        let different: std::collections::BTreeSet<Duration> = nodes.collect();
        assert!(different.len() > 50, "{}", different.len());
    }
}
