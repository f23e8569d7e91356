//! What is wrong, for people: said in the log, in `/readyz`, in `agent.json`
//! and, with a Kubernetes source, in an Event.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a problem does to the pods of this node. Ordered: the worst decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Pods are served; a person should know all the same.
    Warning,
    /// New pods cannot be served: not ready, STATUS 50.
    NewPods,
    /// Running pods are affected too: not ready, STATUS 51.
    RunningPods,
}

/// One thing that is wrong, on which object, and its cure. Two problems with
/// the same `kind` and `object` are the same one, seen again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// A fixed word for metrics and for telling problems apart:
    /// `no-pod-cidr`, `vxlan-port-taken`.
    pub kind: String,
    /// The object: a Node's name, a device, a table.
    pub object: String,
    /// What it does.
    pub effect: Effect,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do.
    pub cure: String,
}

impl Problem {
    /// A problem of `kind` on `object`.
    #[must_use]
    pub fn new(
        kind: &str,
        object: impl Into<String>,
        effect: Effect,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.to_owned(),
            object: object.into(),
            effect,
            message: message.into(),
            cure: cure.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.message, self.object, self.cure)
    }
}
