//! Looks for other programs that serve Services, and for what a kube-proxy has left, while
//! this agent serves them.
//!
//! It writes nothing. Changes are not followed: such rules are there for long, and those
//! of kube-proxy change with every endpoint.

use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::service_proxy::{find, problems};

use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};

/// Names other service proxies.
#[derive(Default)]
pub struct ServiceProxyInspector {
    /// What was found last.
    problems: Vec<Problem>,
    /// Whether it was looked for since Services are served.
    has_looked: bool,
}

impl ServiceProxyInspector {
    /// Looks at once when the agent `serves` Services, then when it is due.
    pub fn inspect(&mut self, serves: bool, due: Due) -> Outcome {
        if !serves {
            *self = Self::default();
        } else if !self.has_looked || due.has(ResyncTarget::ForeignRules) {
            self.has_looked = true;
            self.problems = match find() {
                Ok(found) => problems(&found, None),
                Err(error) => vec![Problem::new(
                    ProblemKind::OtherTablesUnreadable,
                    "Services",
                    format!("whether another program serves Services is not known: {error}"),
                )],
            };
        }
        Outcome {
            problems: self.problems.clone(),
            ..Outcome::default()
        }
    }
}
