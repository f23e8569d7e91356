//! Which writes are due: the condition of the own Node, and Events on it and on policies.
//! Pure: the clock is an argument.
//!
//! [`Plan::observe`] takes the current problems, [`Plan::due`] gives one [`Write`] at a time,
//! and its outcome is reported back.

use std::time::{Duration, Instant};

use tweed_core::problem::{Problem, ProblemKind};
use tweed_watch::client::Failure;

use super::attempts::Pauses;
use super::condition::{Condition, ConditionPlan};
use super::events::{EventPlan, EventWrite};
use crate::serve::status::Status;

/// A write to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// The own Node must have this condition.
    Condition(Condition),
    /// Write this Event.
    Event(EventWrite),
}

/// The writes that are to be made.
#[derive(Debug)]
pub(super) struct Plan {
    /// UID of the own Node; empty while it is not known.
    pub uid: String,
    nodes_unreadable: bool,
    pub condition: ConditionPlan,
    pub events: EventPlan,
    pub pauses: Pauses,
}

impl Plan {
    /// A plan of the Node of this name, without any write.
    pub(super) fn new(node_name: &str) -> Self {
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let pauses = Pauses::of_node(node_name, min, max);
        Self {
            uid: String::new(),
            nodes_unreadable: false,
            condition: ConditionPlan::default(),
            events: EventPlan::new(node_name, pauses),
            pauses,
        }
    }

    /// Takes the current problems. `uid` is that of the own Node: if it changes,
    /// the Node was created again, and nothing is written to it yet.
    pub(super) fn observe(&mut self, status: &Status, uid: &str, now: Instant) {
        if self.uid != uid {
            self.condition.node_changed();
            if !self.uid.is_empty() {
                self.events.node_replaced();
            }
            uid.clone_into(&mut self.uid);
        }
        self.condition.observe(status, now);
        self.events.observe(&status.problems, now);
        let mut kinds = status.problems.iter().map(|problem| problem.kind);
        let unreadable = kinds.any(|kind| kind == ProblemKind::NodesUnreadable);
        if std::mem::replace(&mut self.nodes_unreadable, unreadable) && !unreadable {
            self.condition.attempts.try_again();
            self.events.try_again();
        }
    }

    /// The next write that is due.
    pub(super) fn due(&self, now: Instant) -> Option<Write> {
        let condition = self.condition.due(now).map(Write::Condition);
        condition.or_else(|| self.events.due(now).map(Write::Event))
    }

    /// When the next write is due, as far as it is known.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let both = [self.condition.due_at(), self.events.due_at()];
        both.into_iter().flatten().min()
    }

    /// The own Node has `condition` now. `came_up` says that it had another one
    /// before, and that the network is available from now on.
    pub(super) fn condition_written(&mut self, condition: Condition, came_up: bool, now: Instant) {
        self.condition.written(condition, now);
        if came_up {
            self.events.came_up(now);
        }
    }

    /// The write has failed. An API server that cannot be reached, or has an error while the
    /// Nodes cannot be read either, is not shown: the watch of Nodes reports it.
    pub(super) fn failed(&mut self, write: &Write, failure: &Failure, now: Instant) {
        let is_away = matches!(
            failure,
            Failure::Unreachable { .. } | Failure::Credentials { .. }
        );
        let is_shown = !is_away && (failure.is_refusal() || !self.nodes_unreadable);
        match write {
            Write::Event(event) => self.events.failed(event, failure, is_shown, now),
            Write::Condition(_) => {
                self.condition.attempts.fail(failure, self.pauses, now);
                if is_shown {
                    self.condition.attempts.show(failure);
                }
            }
        }
    }

    /// What the board shows of writes that have failed and are still wanted.
    pub(super) fn problem(&self, now: Instant) -> Option<Problem> {
        let of_condition = self.condition.problem(now);
        of_condition.or_else(|| self.events.problem(now)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::Effect;

    struct Node {
        plan: Plan,
        start: Instant,
        uid: &'static str,
    }

    impl Node {
        fn new() -> Self {
            let start = Instant::now();
            Self {
                plan: Plan::new("n1"),
                start,
                uid: "uid",
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn observe(&mut self, seconds: u64, kinds: &[(ProblemKind, Effect)]) {
            let problem = |(kind, effect): &(ProblemKind, Effect)| {
                Problem::new(*kind, "a", format!("it is {kind}")).with_effect(*effect)
            };
            let status = Status {
                problems: kinds.iter().map(problem).collect(),
                notes: Vec::new(),
                unchanged_for: Duration::ZERO,
            };
            let now = self.at(seconds);
            self.plan.observe(&status, self.uid, now);
        }

        /// Makes the writes that are due; returns them as text.
        fn act(&mut self, seconds: u64) -> Vec<String> {
            let now = self.at(seconds);
            let mut done = Vec::new();
            while let Some(write) = self.plan.due(now) {
                match write {
                    Write::Condition(condition) => {
                        done.push(format!("{}={}", condition.reason, condition.unavailable));
                        let came_up = !condition.unavailable;
                        self.plan.condition_written(condition, came_up, now);
                    }
                    Write::Event(event) => {
                        done.push(event.reason.to_owned());
                        self.plan.events.written(&event, 1, now);
                    }
                }
            }
            done
        }
    }

    const NO_CIDR: (ProblemKind, Effect) = (ProblemKind::NoPodCidr, Effect::NewPods);
    const STARTING: (ProblemKind, Effect) = (ProblemKind::Starting, Effect::NewPods);

    #[test]
    fn an_outage_is_written_when_it_lasts_and_its_end_at_once() {
        let mut node = Node::new();
        node.observe(0, &[NO_CIDR]);
        assert_eq!(node.act(4), [""; 0]);
        assert_eq!(node.plan.due_at(), Some(node.at(5)));
        assert_eq!(node.act(5), ["NoPodCidr=true", "NoPodCidr"]);
        node.observe(7, &[]);
        assert_eq!(node.act(7), ["TweedIsUp=false", "TweedIsUp"]);
        assert_eq!(node.act(8), [""; 0]);
    }

    #[test]
    fn a_restart_writes_nothing_until_the_agent_knows_the_nodes() {
        let mut node = Node::new();
        node.observe(0, &[STARTING]);
        assert_eq!(node.act(600), [""; 0]);
        assert_eq!(node.plan.due_at(), None);
        node.observe(601, &[]);
        assert_eq!(node.act(601)[0], "TweedIsUp=false");
    }

    #[test]
    fn the_condition_is_checked_periodically_and_when_the_node_is_replaced() {
        let mut node = Node::new();
        node.observe(0, &[]);
        node.act(0);
        assert_eq!(node.plan.due_at(), Some(node.at(300)));
        assert_eq!(node.act(300)[0], "TweedIsUp=false");
        node.uid = "made again";
        node.observe(301, &[]);
        assert_eq!(node.act(301), ["TweedIsUp=false", "TweedIsUp"]);
    }

    #[test]
    fn a_replaced_node_gets_all_events_again() {
        let trouble = [(ProblemKind::PortmapMissing, Effect::Warning)];
        let mut node = Node::new();
        node.uid = "";
        node.observe(0, &trouble);
        assert_eq!(
            node.act(5),
            ["TweedIsUp=false", "PortmapMissing", "TweedIsUp"]
        );
        node.uid = "uid";
        node.observe(6, &trouble);
        assert_eq!(
            node.act(6),
            ["TweedIsUp=false"],
            "the UID of the same Node becomes known"
        );
        node.uid = "made again";
        node.observe(7, &trouble);
        assert_eq!(
            node.act(7),
            ["TweedIsUp=false", "PortmapMissing", "TweedIsUp"]
        );
    }

    #[test]
    fn changing_reasons_are_written_every_ten_seconds_at_most() {
        let mut node = Node::new();
        node.observe(0, &[NO_CIDR]);
        node.act(5);
        node.observe(6, &[(ProblemKind::UnderlayDown, Effect::RunningPods)]);
        assert_eq!(node.act(14), ["UnderlayDown"], "an Event only");
        assert_eq!(node.act(15), ["UnderlayDown=true"]);
    }

    fn answer(code: u16) -> Failure {
        Failure::Answered {
            url: "https://api".to_owned(),
            code,
            message: "no".to_owned(),
            retry_after: Some(Duration::from_secs(40)),
        }
    }

    #[test]
    fn a_condition_that_cannot_be_written_delays_no_event_and_the_other_way_round() {
        let mut node = Node::new();
        node.observe(0, &[NO_CIDR]);
        let condition = node.plan.due(node.at(5)).unwrap();
        node.plan.failed(&condition, &answer(500), node.at(5));
        assert_eq!(node.act(6), ["NoPodCidr"]);
        assert!(node.plan.due_at() > Some(node.at(45)));

        let mut node = Node::new();
        node.observe(0, &[(ProblemKind::PortmapMissing, Effect::Warning)]);
        node.act(0);
        let event = node.plan.due(node.at(5)).unwrap();
        node.plan.failed(&event, &answer(500), node.at(5));
        node.observe(6, &[NO_CIDR]);
        assert_eq!(node.act(11), ["NoPodCidr=true"]);
    }

    #[test]
    fn writes_that_failed_are_tried_again_when_the_api_server_is_back() {
        let away = (ProblemKind::NodesUnreadable, Effect::Warning);
        let mut node = Node::new();
        node.observe(0, &[away]);
        let condition = node.plan.due(node.at(0)).unwrap();
        node.plan.failed(&condition, &answer(503), node.at(0));
        assert_eq!(node.act(1), [""; 0]);
        node.observe(2, &[]);
        assert_eq!(node.act(2)[0], "TweedIsUp=false");
    }

    /// The watch of Nodes says so, with its cure.
    #[test]
    fn credentials_that_cannot_be_had_are_no_refusal_of_a_write() {
        let failure = Failure::Credentials {
            url: "https://api".to_owned(),
            why: "no token".to_owned(),
        };
        let mut node = Node::new();
        node.observe(0, &[]);
        let condition = node.plan.due(node.at(0)).unwrap();
        node.plan.failed(&condition, &failure, node.at(0));
        assert_eq!(node.plan.problem(node.at(0)), None);
        node.plan.failed(&condition, &answer(404), node.at(0));
        assert!(node.plan.problem(node.at(0)).is_some());
    }
}
