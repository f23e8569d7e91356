//! The condition `NetworkUnavailable` of the own Node: what it should say, and
//! whether the Node says it: pure.

use serde::Deserialize;
use serde_json::{Value, json};

use super::words;
use crate::serve::status::Status;
use tweed_core::problem::Problem;

/// The condition's type. While it is true, Kubernetes keeps new pods away by the
/// taint `node.kubernetes.io/network-unavailable`.
pub const TYPE: &str = "NetworkUnavailable";
/// The reason when it is false, and of the Event that says so.
pub const UP: &str = "TweedIsUp";
pub(super) const UP_MESSAGE: &str = "tweed serves the pods of this node";

/// What the condition should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether new pods cannot be served.
    pub unavailable: bool,
    /// Why, in one word.
    pub reason: String,
    /// Why, and what to do.
    pub message: String,
}

/// A condition as a Node has it.
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
    /// What `status` comes to. None while the agent does not know: after its
    /// start, and while it has never seen the Nodes.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let outages = status.problems.iter().filter(|p| words::is_outage(p));
        let outages: Vec<&Problem> = outages.collect();
        match outages.first() {
            Some(worst) => Some(Self {
                unavailable: true,
                reason: worst.kind.reason().to_owned(),
                message: words::message(&outages),
            }),
            None if status.ready() => Some(Self {
                unavailable: false,
                reason: UP.to_owned(),
                message: UP_MESSAGE.to_owned(),
            }),
            None => None,
        }
    }

    /// What to write to a Node that has the conditions `found`; none if it says
    /// the same already.
    #[must_use]
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
    fn it_is_true_while_new_pods_cannot_be_served_and_says_why() {
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
    fn not_knowing_is_no_word_on_the_network() {
        let of_source = |kind: &&ProblemKind| kind.scope() == Scope::Source;
        for kind in ProblemKind::ALL.iter().filter(of_source) {
            assert_eq!(of(&[(*kind, Effect::NewPods)]), None, "{kind}");
        }
        let away = (ProblemKind::NodesUnreadable, Effect::NewPods);
        let down = of(&[away, (ProblemKind::VxlanPortTaken, Effect::NewPods)]).unwrap();
        assert_eq!(down.reason, "VxlanPortTaken");
        assert_eq!(down.message, "it broke (alpha): mend it");
        // A node that was ready keeps its word while the API server is away.
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
    fn only_what_differs_is_written_and_the_time_of_a_turn_is_kept() {
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
