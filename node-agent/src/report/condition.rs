//! The condition `NetworkUnavailable` of the own Node: what it should be, and when it is
//! due to be compared with the one that the Node has. Pure.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use tweed_core::problem::Problem;

use super::attempts::Attempts;
use super::problems::{is_outage, message};
use crate::serve::status::Status;

/// The condition's type. While it is true, Kubernetes keeps new pods away with
/// the taint `node.kubernetes.io/network-unavailable`.
pub const TYPE: &str = "NetworkUnavailable";
/// The reason while the condition is false, and of the Event that reports it.
pub const UP: &str = "TweedIsUp";
pub(super) const UP_MESSAGE: &str = "tweed serves the pods of this node";

/// How long a problem must last before it is reported to Kubernetes: a restart
/// or a short interruption must not keep pods from the node.
pub(super) const SETTLED: Duration = Duration::from_secs(5);
/// Time between two checks of a condition that does not change: somebody else
/// may have changed it.
const CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Minimum time between two changes of the reason or the message of a condition
/// that stays true.
const MIN_GAP: Duration = Duration::from_secs(10);

/// The condition that the own Node should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    /// Its status: whether new pods cannot be served.
    pub unavailable: bool,
    /// Its reason, in one word.
    pub reason: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

/// When the condition is due.
#[derive(Debug, Default)]
pub(super) struct ConditionPlan {
    desired: Option<Condition>,
    /// Since when the desired status has been the same.
    since: Option<Instant>,
    /// The condition that the Node had when it was last read or written, and when that was.
    written: Option<(Condition, Instant)>,
    pub attempts: Attempts,
}

impl Condition {
    /// The condition that follows from `status`. `None` while the agent does not
    /// know it: after its start, and until the Nodes are listed.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let outages: Vec<&Problem> = status.problems.iter().filter(|p| is_outage(p)).collect();
        match outages.first() {
            Some(worst) => Some(Self {
                unavailable: true,
                reason: worst.kind.reason(),
                message: message(&outages),
            }),
            None if status.ready() => Some(Self {
                unavailable: false,
                reason: UP,
                message: UP_MESSAGE.to_owned(),
            }),
            None => None,
        }
    }

    /// The condition to write to a Node that has the conditions `found`, or `None`
    /// if it has this one.
    pub(super) fn to_write(&self, found: &Value, now: &str) -> Option<Value> {
        let status = if self.unavailable { "True" } else { "False" };
        let mut conditions = found.as_array().into_iter().flatten();
        let own = conditions.find(|one| one["type"] == TYPE);
        let turned = own.is_none_or(|own| own["status"] != status);
        let is_same =
            |own: &Value| own["reason"] == self.reason && own["message"] == self.message.as_str();
        if own.is_some_and(is_same) && !turned {
            return None;
        }
        let mut condition = json!({
            "type": TYPE,
            "status": status,
            "reason": self.reason,
            "message": self.message,
            "lastHeartbeatTime": now,
        });
        // Without this field, the patch leaves the time as it is.
        if turned {
            condition["lastTransitionTime"] = json!(now);
        }
        Some(condition)
    }
}

impl ConditionPlan {
    /// Takes the current problems.
    pub(super) fn observe(&mut self, status: &Status, now: Instant) {
        let desired = Condition::of(status);
        let unavailable = |desired: &Option<Condition>| desired.as_ref().map(|c| c.unavailable);
        if unavailable(&desired) != unavailable(&self.desired) {
            self.since = Some(now);
        }
        self.desired = desired;
    }

    /// The own Node is another one, or was not known before.
    pub(super) fn node_changed(&mut self) {
        self.written = None;
    }

    /// The condition, if it is due.
    pub(super) fn due(&self, now: Instant) -> Option<Condition> {
        let is_due = self.due_at().is_some_and(|at| at <= now);
        self.desired.clone().filter(|_| is_due)
    }

    /// When the condition is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.wanted_at().map(|at| self.attempts.at(at))
    }

    /// The Node has `condition` now.
    pub(super) fn written(&mut self, condition: Condition, now: Instant) {
        self.written = Some((condition, now));
        self.attempts = Attempts::default();
    }

    /// What the board shows of attempts at a condition that is still wanted.
    pub(super) fn problem(&self, now: Instant) -> Option<&Problem> {
        let is_wanted = self.wanted_at().is_some_and(|at| at <= now);
        self.attempts.problem().filter(|_| is_wanted)
    }

    /// When the condition is due, without regard to attempts that have failed.
    fn wanted_at(&self) -> Option<Instant> {
        let (desired, since) = (self.desired.as_ref()?, self.since?);
        // That the network is available is written at once.
        let settled = if desired.unavailable {
            since + SETTLED
        } else {
            since
        };
        Some(match &self.written {
            Some((written, at)) if written == desired => *at + CHECK_INTERVAL,
            Some((written, at)) if written.unavailable == desired.unavailable => {
                settled.max(*at + MIN_GAP)
            }
            _ => settled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::{Effect, ProblemKind, Scope};

    fn of(problems: &[(ProblemKind, Effect)]) -> Option<Condition> {
        let problem = |(kind, effect): &(ProblemKind, Effect)| {
            Problem::new(*kind, "alpha", "it broke")
                .with_effect(*effect)
                .with_cure("mend it")
        };
        Condition::of(&Status {
            problems: problems.iter().map(problem).collect(),
            notes: Vec::new(),
            unchanged_for: Duration::ZERO,
        })
    }

    fn found(status: &str, reason: &str) -> Value {
        json!({"type": TYPE, "status": status, "reason": reason, "message": UP_MESSAGE})
    }

    #[test]
    fn it_is_true_with_a_reason_while_new_pods_cannot_be_served() {
        let down = of(&[
            (ProblemKind::NoPodCidr, Effect::NewPods),
            (ProblemKind::PortmapMissing, Effect::Warning),
        ]);
        let expected = Condition {
            unavailable: true,
            reason: "NoPodCidr",
            message: "it broke (alpha): mend it".to_owned(),
        };
        assert_eq!(down, Some(expected));
        assert!(
            !of(&[(ProblemKind::PortmapMissing, Effect::Warning)])
                .unwrap()
                .unavailable
        );
        assert_eq!(of(&[]).unwrap().reason, UP);
    }

    #[test]
    fn unknown_nodes_do_not_change_the_condition() {
        let of_source = |kind: &&ProblemKind| kind.scope() == Scope::Source;
        for kind in ProblemKind::ALL.iter().filter(of_source) {
            assert_eq!(of(&[(*kind, Effect::NewPods)]), None, "{kind}");
        }
        let away = (ProblemKind::NodesUnreadable, Effect::NewPods);
        let down = of(&[away, (ProblemKind::VxlanPortTaken, Effect::NewPods)]).unwrap();
        assert_eq!(down.reason, "VxlanPortTaken");
        assert_eq!(down.message, "it broke (alpha): mend it");
        // A node that was ready stays available while the API server is away.
        assert!(
            !of(&[(ProblemKind::NodesUnreadable, Effect::Warning)])
                .unwrap()
                .unavailable
        );
    }

    #[test]
    fn a_full_range_is_no_outage() {
        let full = of(&[(ProblemKind::RangeFull, Effect::Warning)]).unwrap();
        assert!(!full.unavailable);
    }

    #[test]
    fn only_a_difference_is_written_and_the_transition_time_is_kept() {
        let up = of(&[]).unwrap();
        let now = "1970-01-01T00:00:00Z";
        let mut others = found("False", UP);
        others["type"] = json!("Ready");
        assert_eq!(up.to_write(&json!([others, found("False", UP)]), now), None);
        let written = up.to_write(&json!([others]), now).unwrap();
        let expected = json!({
            "type": "NetworkUnavailable", "status": "False", "reason": "TweedIsUp",
            "message": UP_MESSAGE, "lastHeartbeatTime": "1970-01-01T00:00:00Z",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        assert_eq!(written, expected);
        let turned = up.to_write(&json!([found("True", UP)]), now).unwrap();
        assert!(turned.get("lastTransitionTime").is_some());
        let words = up
            .to_write(&json!([found("False", "AnotherIsUp")]), now)
            .unwrap();
        assert_eq!(words.get("lastTransitionTime"), None);
    }
}
