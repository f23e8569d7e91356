//! The condition `NetworkUnavailable` of the own Node.

use serde::Deserialize;
use serde_json::{Value, json};

use tweed_core::problem::Problem;

use super::problems::{is_outage, message};
use crate::serve::status::Status;

/// The condition's type. While it is true, Kubernetes keeps new pods away with
/// the taint `node.kubernetes.io/network-unavailable`.
pub const TYPE: &str = "NetworkUnavailable";
/// The reason while the condition is false, and of the Event that reports it.
pub const UP: &str = "TweedIsUp";
pub(in crate::report) const UP_MESSAGE: &str = "tweed serves the pods of this node";

/// The condition that the own Node should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its status: whether new pods cannot be served.
    pub unavailable: bool,
    /// Its reason, in one word.
    pub reason: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// A condition that a Node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Found {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl Condition {
    /// The condition that follows from `status`. `None` while the agent does not
    /// know it: after its start, and until the Nodes are listed.
    pub fn of(status: &Status) -> Option<Self> {
        let outages = status.problems.iter().filter(|p| is_outage(p));
        let outages: Vec<&Problem> = outages.collect();
        match outages.first() {
            Some(worst) => Some(Self {
                unavailable: true,
                reason: worst.kind.reason().to_owned(),
                message: message(&outages),
            }),
            None if status.ready() => Some(Self {
                unavailable: false,
                reason: UP.to_owned(),
                message: UP_MESSAGE.to_owned(),
            }),
            None => None,
        }
    }

    /// The condition to write to a Node that has the conditions `found`, or `None`
    /// if it has this one.
    pub fn to_write(&self, found: &[Found], now: &str) -> Option<Value> {
        let status = if self.unavailable { "True" } else { "False" };
        let found = found.iter().find(|found| found.kind == TYPE);
        let turned = found.is_none_or(|found| found.status != status);
        let same =
            found.is_some_and(|found| found.reason == self.reason && found.message == self.message);
        if same && !turned {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn found(status: &str, reason: &str) -> Found {
        Found {
            kind: TYPE.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: UP_MESSAGE.to_owned(),
        }
    }

    #[test]
    fn it_is_true_with_a_reason_while_new_pods_cannot_be_served() {
        let down = of(&[
            (ProblemKind::NoPodCidr, Effect::NewPods),
            (ProblemKind::PortmapMissing, Effect::Warning),
        ]);
        let expected = Condition {
            unavailable: true,
            reason: "NoPodCidr".to_owned(),
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
        let others = Found {
            kind: "Ready".to_owned(),
            ..found("False", UP)
        };
        assert_eq!(
            up.to_write(&[others.clone(), found("False", UP)], now),
            None
        );
        let written = up.to_write(&[others], now).unwrap();
        let expected = json!({
            "type": "NetworkUnavailable", "status": "False", "reason": "TweedIsUp",
            "message": UP_MESSAGE, "lastHeartbeatTime": "1970-01-01T00:00:00Z",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        assert_eq!(written, expected);
        let turned = up.to_write(&[found("True", UP)], now).unwrap();
        assert!(turned.get("lastTransitionTime").is_some());
        let words = up.to_write(&[found("False", "AnotherIsUp")], now).unwrap();
        assert_eq!(words.get("lastTransitionTime"), None);
    }
}
