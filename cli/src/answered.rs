//! What a node answers, or why it has not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a node has not answered, as a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Why.
    pub error: String,
    /// Whether the agent runs, and has refused who asked or what: then it is not silent.
    #[serde(skip)]
    pub is_refusal: bool,
}

impl Unanswered {
    /// That reason.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            is_refusal: false,
        }
    }

    /// The same of an agent that has refused to answer.
    pub fn refused(error: impl Into<String>) -> Self {
        Self {
            is_refusal: true,
            ..Self::new(error)
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Unanswered {}

/// What a node answers, and its name: empty for the node that this program runs on.
pub type Answered<R> = (String, Result<R, Unanswered>);

/// The reports of the nodes that have answered, each with the node's name.
pub fn reports<R>(answers: &[Answered<R>]) -> impl Iterator<Item = (&str, &R)> + Clone {
    answers
        .iter()
        .filter_map(|(node, answer)| Some((node.as_str(), answer.as_ref().ok()?)))
}
