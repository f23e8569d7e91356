//! Which condition and which Events the own Node should have, and when they are
//! due. It is pure: the clock is an argument.
//!
//! [`Plan::observe`] takes the current problems, [`Plan::due`] gives one
//! [`Write`] at a time, and its outcome is reported back. What the condition
//! says is decided in [`condition`]; [`events`] keeps one Event for each reason, and
//! [`policies`] one for each policy that cannot be carried out.

pub mod condition;
pub mod events;
pub mod policies;
mod problems;

use std::time::{Duration, Instant};

use tweed_core::problem::ProblemKind;

use crate::serve::status::Status;
use condition::Condition;
use events::{EventPlan, EventWrite};
use policies::{PolicyEvent, PolicyEvents};

/// How long a problem must last before it is reported to Kubernetes: a restart
/// or a short interruption must not keep pods from the node.
pub(super) const SETTLED: Duration = Duration::from_secs(5);
/// Time between two checks of a condition that does not change: somebody else
/// may have changed it.
const CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Time after which an Event that matters as long as its problem lasts is written again.
/// An API server keeps an Event for one hour by default.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// Minimum time between two changes of the reason or the message of a condition
/// that stays true.
const MIN_GAP: Duration = Duration::from_secs(10);

/// A write to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The own Node must have this condition.
    Condition(Condition),
    /// Write this Event.
    Event(EventWrite),
    /// Write this Event on a policy.
    PolicyEvent(PolicyEvent),
}

/// Writes that are delayed together when one of them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The Node's condition.
    Condition,
    /// Events on the Node.
    Events,
    /// Events on policies.
    PolicyEvents,
}

impl Write {
    /// The channel of the write.
    pub fn channel(&self) -> Channel {
        match self {
            Self::Condition(_) => Channel::Condition,
            Self::Event(_) => Channel::Events,
            Self::PolicyEvent(_) => Channel::PolicyEvents,
        }
    }
}

/// The writes that are to be made.
#[derive(Debug)]
pub struct Plan {
    desired: Option<Desired>,
    written: Option<Written>,
    /// UID of the own Node; empty while it is not known.
    uid: String,
    nodes_unreadable: bool,
    events: EventPlan,
    /// Name of the own Node.
    node_name: String,
    policy_events: PolicyEvents,
    /// No write of the channel before these times.
    condition_delayed_until: Instant,
    events_delayed_until: Instant,
    policy_events_delayed_until: Instant,
}

/// The condition that the Node should have.
#[derive(Debug)]
struct Desired {
    condition: Condition,
    /// Since when its status has been the same.
    since: Instant,
}

/// The condition that the Node had when it was last read or written.
#[derive(Debug)]
struct Written {
    condition: Condition,
    uid: String,
    at: Instant,
}

impl Plan {
    /// A plan of the Node of this name, without any write.
    pub fn new(node_name: &str, now: Instant) -> Self {
        Self {
            desired: None,
            written: None,
            uid: String::new(),
            nodes_unreadable: false,
            events: EventPlan::default(),
            node_name: node_name.to_owned(),
            policy_events: PolicyEvents::default(),
            condition_delayed_until: now,
            events_delayed_until: now,
            policy_events_delayed_until: now,
        }
    }

    /// Takes the current problems. `uid` is that of the own Node: if it changes,
    /// the Node was created again, and nothing is written to it yet.
    pub fn observe(&mut self, status: &Status, uid: &str, now: Instant) {
        if self.uid != uid {
            if !self.uid.is_empty() {
                self.events.node_replaced();
            }
            uid.clone_into(&mut self.uid);
        }
        self.events.observe(&status.problems, now);
        let name = &self.node_name;
        self.policy_events.observe(&status.problems, name, now);
        let mut kinds = status.problems.iter().map(|problem| problem.kind);
        let unreadable = kinds.any(|kind| kind == ProblemKind::NodesUnreadable);
        if std::mem::replace(&mut self.nodes_unreadable, unreadable) && !unreadable {
            // The API server can be reached again.
            self.delay(Channel::Condition, now);
            self.delay(Channel::Events, now);
            self.delay(Channel::PolicyEvents, now);
        }
        let before = self.desired.take();
        self.desired = Condition::of(status).map(|condition| {
            let same = before.filter(|d| d.condition.unavailable == condition.unavailable);
            let since = same.map_or(now, |desired| desired.since);
            Desired { condition, since }
        });
    }

    /// Whether the Nodes cannot be read at present.
    pub fn nodes_unreadable(&self) -> bool {
        self.nodes_unreadable
    }

    /// The next write that is due.
    pub fn due(&self, now: Instant) -> Option<Write> {
        let condition_at = (self.condition_due_at()).map(|at| at.max(self.condition_delayed_until));
        if condition_at.is_some_and(|at| at <= now) {
            return (self.desired.as_ref()).map(|d| Write::Condition(d.condition.clone()));
        }
        let event = self.events.due(now);
        let event = event.filter(|_| now >= self.events_delayed_until);
        let policy = || {
            let event = self.policy_events.due(now);
            event.filter(|_| now >= self.policy_events_delayed_until)
        };
        (event.map(Write::Event)).or_else(|| policy().map(Write::PolicyEvent))
    }

    /// When the next write is due, as far as it is known.
    pub fn due_at(&self) -> Option<Instant> {
        let condition = (self.condition_due_at()).map(|at| at.max(self.condition_delayed_until));
        let event = (self.events.due_at()).map(|at| at.max(self.events_delayed_until));
        let policy = self.policy_events.due_at();
        let policy = policy.map(|at| at.max(self.policy_events_delayed_until));
        [condition, event, policy].into_iter().flatten().min()
    }

    /// Whether a write of this channel was due by `now` and was not made, for
    /// example because the channel is delayed.
    pub fn is_overdue(&self, channel: Channel, now: Instant) -> bool {
        let due_at = match channel {
            Channel::Condition => self.condition_due_at(),
            Channel::Events => self.events.due_at(),
            Channel::PolicyEvents => self.policy_events.due_at(),
        };
        due_at.is_some_and(|at| at <= now)
    }

    /// The own Node has `condition` now. `came_up` says that it had another one
    /// before, and that the network is available from now on.
    pub fn condition_written(&mut self, condition: Condition, came_up: bool, now: Instant) {
        self.written = Some(Written {
            condition,
            uid: self.uid.clone(),
            at: now,
        });
        if came_up {
            self.events.came_up(now);
        }
    }

    /// The Event was written and has this count at the API server.
    pub fn event_written(&mut self, event: &EventWrite, count: i32, now: Instant) {
        self.events.written(event, count, now);
    }

    /// The Event could not be written.
    pub fn event_failed(&mut self, event: &EventWrite, now: Instant) {
        self.events.failed(event, now);
    }

    /// The Event exists at the API server, or its policy does not.
    pub fn policy_event_written(&mut self, event: &PolicyEvent, now: Instant) {
        self.policy_events.written(event, now);
    }

    /// The API server has answered and not taken the Event. `message` is what it
    /// answered, if that is a refusal.
    pub fn policy_event_refused(
        &mut self,
        event: &PolicyEvent,
        message: Option<&str>,
        now: Instant,
    ) {
        self.policy_events.refused(event, message, now);
    }

    /// Why an Event on a policy was refused when it was last tried.
    pub fn policy_event_refusal(&self) -> Option<&str> {
        self.policy_events.refusal()
    }

    /// Makes no write of this channel before `until`.
    pub fn delay(&mut self, channel: Channel, until: Instant) {
        match channel {
            Channel::Condition => self.condition_delayed_until = until,
            Channel::Events => self.events_delayed_until = until,
            Channel::PolicyEvents => self.policy_events_delayed_until = until,
        }
    }

    /// When the condition is due, without regard to delays.
    fn condition_due_at(&self) -> Option<Instant> {
        let Desired { condition, since } = self.desired.as_ref()?;
        // That the network is available is written at once.
        let settled = match condition.unavailable {
            true => *since + SETTLED,
            false => *since,
        };
        let written = self.written.as_ref().filter(|w| w.uid == self.uid);
        Some(match written {
            Some(written) if written.condition == *condition => written.at + CHECK_INTERVAL,
            Some(written) if written.condition.unavailable == condition.unavailable => {
                settled.max(written.at + MIN_GAP)
            }
            _ => settled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::{Effect, Problem};

    struct Node {
        plan: Plan,
        start: Instant,
        uid: &'static str,
    }

    impl Node {
        fn new() -> Self {
            let start = Instant::now();
            Self {
                plan: Plan::new("n1", start),
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
                        done.push(event.reason.clone());
                        self.plan.event_written(&event, 1, now);
                    }
                    Write::PolicyEvent(event) => {
                        done.push(format!("{} on {}", event.reason, event.name));
                        self.plan.policy_event_written(&event, now);
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

    #[test]
    fn a_delayed_channel_does_not_delay_the_other() {
        let mut node = Node::new();
        node.observe(0, &[NO_CIDR]);
        node.plan.delay(Channel::Condition, node.at(60));
        assert_eq!(node.act(5), ["NoPodCidr"]);
        assert_eq!(node.plan.due_at(), Some(node.at(60)));
        node.plan.delay(Channel::Events, node.at(3600));
        assert_eq!(node.act(60), ["NoPodCidr=true"]);
    }

    #[test]
    fn delayed_writes_are_made_when_the_api_server_is_back() {
        let away = (ProblemKind::NodesUnreadable, Effect::Warning);
        let mut node = Node::new();
        node.observe(0, &[away]);
        node.plan.delay(Channel::Condition, node.at(60));
        assert_eq!(node.act(1), [""; 0]);
        node.observe(2, &[]);
        assert_eq!(node.act(2)[0], "TweedIsUp=false");
    }
}
