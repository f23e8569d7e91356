//! What is to be said to the API server, and when: pure, the clock is an
//! argument. Out of it come [`Errand`]s, one at a time; what became of one goes
//! back into it.

use std::time::{Duration, Instant};

use super::SETTLED;
use super::condition::Condition;
use super::ledger::{Ledger, Telling};
use crate::serve::status::Status;
use tweed_core::problem::ProblemKind;

/// The Node is looked at this often: somebody else may have changed it.
const CHECK: Duration = Duration::from_secs(5 * 60);
/// Between two words on an outage, if its reasons keep changing.
const GAP: Duration = Duration::from_secs(10);

/// Something to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// See to it that the own Node has this condition.
    Condition(Condition),
    /// Write this Event.
    Event(Telling),
}

/// Errands that fail and are put off together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The Node's condition.
    Condition,
    /// Events.
    Events,
}

impl Errand {
    /// The errand's channel.
    #[must_use]
    pub fn channel(&self) -> Channel {
        match self {
            Self::Condition(_) => Channel::Condition,
            Self::Event(_) => Channel::Events,
        }
    }
}

/// What is to be said.
#[derive(Debug)]
pub struct Agenda {
    wanted: Option<Wanted>,
    standing: Option<Standing>,
    /// The own Node's UID, as the source of Nodes has it.
    uid: String,
    /// Whether the Nodes cannot be read.
    away: bool,
    events: Ledger,
    condition_from: Instant,
    events_from: Instant,
}

#[derive(Debug)]
struct Wanted {
    condition: Condition,
    /// Since when it is so, whatever the words.
    since: Instant,
}

/// What the Node was last seen or made to say.
#[derive(Debug)]
struct Standing {
    condition: Condition,
    uid: String,
    at: Instant,
}

impl Agenda {
    /// An agenda on which nothing stands yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            wanted: None,
            standing: None,
            uid: String::new(),
            away: false,
            events: Ledger::default(),
            condition_from: now,
            events_from: now,
        }
    }

    /// Takes in what the board says. `uid` is that of the own Node: a Node that
    /// was made again under the same name has not heard anything yet.
    pub fn see(&mut self, status: &Status, uid: String, now: Instant) {
        if self.uid != uid {
            if !self.uid.is_empty() {
                self.events.another_node();
            }
            self.uid = uid;
        }
        self.events.see(&status.problems, now);
        let away = status
            .problems
            .iter()
            .any(|p| p.kind == ProblemKind::NodesUnreadable);
        if std::mem::replace(&mut self.away, away) && !away {
            // What was put off because the API server was away need not wait.
            self.put_off(Channel::Condition, now);
            self.put_off(Channel::Events, now);
        }
        let Some(condition) = Condition::of(status) else {
            self.wanted = None;
            return;
        };
        let before = self.wanted.take();
        let unturned = before.filter(|w| w.condition.unavailable == condition.unavailable);
        self.wanted = Some(Wanted {
            condition,
            since: unturned.map_or(now, |wanted| wanted.since),
        });
    }

    /// What is due now.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Errand> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.condition_due_at()) {
            return (self.wanted.as_ref()).map(|w| Errand::Condition(w.condition.clone()));
        }
        if now >= self.events_from {
            return self.events.due(now).map(Errand::Event);
        }
        None
    }

    /// When the next errand is due, as far as is known.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        let event = self.events.due_at().map(|at| at.max(self.events_from));
        [self.condition_due_at(), event].into_iter().flatten().min()
    }

    /// Whether something of this channel should have been said by now. What was
    /// put off is not said, and so stays overdue until there is nothing to say.
    #[must_use]
    pub fn is_overdue(&self, channel: Channel, now: Instant) -> bool {
        let owed_at = match channel {
            Channel::Condition => self.condition_owed_at(),
            Channel::Events => self.events.due_at(),
        };
        owed_at.is_some_and(|at| at <= now)
    }

    /// The own Node says `condition` now. `came_up`: it said something else
    /// before, and pods are served from now on.
    pub fn agreed(&mut self, condition: Condition, came_up: bool, now: Instant) {
        self.standing = Some(Standing {
            condition,
            uid: self.uid.clone(),
            at: now,
        });
        if came_up {
            self.events.came_up(now);
        }
    }

    /// The Event was written, as the `count`-th of its reason.
    pub fn told(&mut self, telling: &Telling, count: i32, now: Instant) {
        self.events.told(telling, count, now);
    }

    /// Leaves a channel alone until then.
    pub fn put_off(&mut self, channel: Channel, until: Instant) {
        match channel {
            Channel::Condition => self.condition_from = until,
            Channel::Events => self.events_from = until,
        }
    }

    fn condition_due_at(&self) -> Option<Instant> {
        (self.condition_owed_at()).map(|at| at.max(self.condition_from))
    }

    /// When the condition is due, were it not put off.
    fn condition_owed_at(&self) -> Option<Instant> {
        let Wanted { condition, since } = self.wanted.as_ref()?;
        // That a node is up is said at once. An outage has to last: a restart,
        // or a moment's trouble, must not keep pods from the node.
        let settled = if condition.unavailable {
            *since + SETTLED
        } else {
            *since
        };
        Some(match &self.standing {
            None => settled,
            Some(standing) if standing.uid != self.uid => settled,
            Some(standing) if standing.condition == *condition => standing.at + CHECK,
            Some(standing) if standing.condition.unavailable == condition.unavailable => {
                settled.max(standing.at + GAP)
            }
            Some(_) => settled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::{Effect, Problem};

    struct Node {
        agenda: Agenda,
        start: Instant,
        uid: &'static str,
    }

    impl Node {
        fn new() -> Self {
            let start = Instant::now();
            Self {
                agenda: Agenda::new(start),
                start,
                uid: "uid",
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn see(&mut self, seconds: u64, kinds: &[(ProblemKind, Effect)]) {
            let problem = |(kind, effect): &(ProblemKind, Effect)| {
                Problem::new(*kind, "a", format!("it is {kind}")).with_effect(*effect)
            };
            let status = Status {
                problems: kinds.iter().map(problem).collect(),
                unchanged_for: Duration::ZERO,
            };
            let now = self.at(seconds);
            self.agenda.see(&status, self.uid.to_owned(), now);
        }

        /// Does what is due, and says what it was.
        fn act(&mut self, seconds: u64) -> Vec<String> {
            let now = self.at(seconds);
            let mut done = Vec::new();
            while let Some(errand) = self.agenda.due(now) {
                match errand {
                    Errand::Condition(condition) => {
                        done.push(format!("{}={}", condition.reason, condition.unavailable));
                        let came_up = !condition.unavailable;
                        self.agenda.agreed(condition, came_up, now);
                    }
                    Errand::Event(telling) => {
                        done.push(telling.reason.clone());
                        self.agenda.told(&telling, 1, now);
                    }
                }
            }
            done
        }
    }

    const NO_CIDR: (ProblemKind, Effect) = (ProblemKind::NoPodCidr, Effect::NewPods);
    const STARTING: (ProblemKind, Effect) = (ProblemKind::Starting, Effect::NewPods);

    #[test]
    fn an_outage_is_said_when_it_lasts_and_its_end_at_once() {
        let mut node = Node::new();
        node.see(0, &[NO_CIDR]);
        assert_eq!(node.act(4), [""; 0]);
        assert_eq!(node.agenda.due_at(), Some(node.at(5)));
        assert_eq!(node.act(5), ["NoPodCidr=true", "NoPodCidr"]);
        node.see(7, &[]);
        assert_eq!(node.act(7), ["TweedIsUp=false", "TweedIsUp"]);
        assert_eq!(node.act(8), [""; 0]);
    }

    #[test]
    fn a_restart_says_nothing_until_the_agent_knows() {
        let mut node = Node::new();
        node.see(0, &[STARTING]);
        assert_eq!(node.act(600), [""; 0]);
        assert_eq!(node.agenda.due_at(), None);
        node.see(601, &[]);
        assert_eq!(node.act(601)[0], "TweedIsUp=false");
    }

    #[test]
    fn the_node_is_looked_at_again_now_and_then_and_when_it_is_another() {
        let mut node = Node::new();
        node.see(0, &[]);
        node.act(0);
        assert_eq!(node.agenda.due_at(), Some(node.at(300)));
        assert_eq!(node.act(300)[0], "TweedIsUp=false");
        node.uid = "made again";
        node.see(301, &[]);
        assert_eq!(node.act(301), ["TweedIsUp=false", "TweedIsUp"]);
    }

    #[test]
    fn a_node_that_is_another_has_heard_of_nothing() {
        let trouble = [(ProblemKind::PortmapMissing, Effect::Warning)];
        let mut node = Node::new();
        node.uid = "";
        node.see(0, &trouble);
        assert_eq!(
            node.act(5),
            ["TweedIsUp=false", "PortmapMissing", "TweedIsUp"]
        );
        node.uid = "uid";
        node.see(6, &trouble);
        assert_eq!(
            node.act(6),
            ["TweedIsUp=false"],
            "now it is known which one it was"
        );
        node.uid = "made again";
        node.see(7, &trouble);
        assert_eq!(
            node.act(7),
            ["TweedIsUp=false", "PortmapMissing", "TweedIsUp"]
        );
    }

    #[test]
    fn reasons_that_keep_changing_are_said_every_ten_seconds_at_most() {
        let mut node = Node::new();
        node.see(0, &[NO_CIDR]);
        node.act(5);
        node.see(6, &[(ProblemKind::UnderlayDown, Effect::RunningPods)]);
        assert_eq!(node.act(14), ["UnderlayDown"], "an Event only");
        assert_eq!(node.act(15), ["UnderlayDown=true"]);
    }

    #[test]
    fn what_fails_is_put_off_and_does_not_hold_up_the_other() {
        let mut node = Node::new();
        node.see(0, &[NO_CIDR]);
        node.agenda.put_off(Channel::Condition, node.at(60));
        assert_eq!(node.act(5), ["NoPodCidr"]);
        assert_eq!(node.agenda.due_at(), Some(node.at(60)));
        node.agenda.put_off(Channel::Events, node.at(3600));
        assert_eq!(node.act(60), ["NoPodCidr=true"]);
    }

    #[test]
    fn what_was_put_off_is_tried_when_the_api_server_is_back() {
        let away = (ProblemKind::NodesUnreadable, Effect::Warning);
        let mut node = Node::new();
        node.see(0, &[away]);
        node.agenda.put_off(Channel::Condition, node.at(60));
        assert_eq!(node.act(1), [""; 0]);
        node.see(2, &[]);
        assert_eq!(node.act(2)[0], "TweedIsUp=false");
    }
}
