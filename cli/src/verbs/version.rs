//! `version`: that of this program, and those of the agents.

use std::io;

use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::message::{Answer, Request};

use crate::VERSION;
use crate::answered::{Answered, Unanswered};
use crate::node::{Node, unexpected};
use crate::output::Page;
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  Of this program and of the agents of the cluster:
    tweedctl version

  Of the agent of this machine:
    tweedctl version --run-dir /run/tweed

In brackets is the commit; `debug` is a build that is no release.";

/// The arguments of `version`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Version {}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the `tweedctl` that asked the agent.
    pub tweedctl: String,
    /// That of the running agent.
    pub agent: String,
}

impl Verb for Version {
    type Report = Report;
    /// `version` is that of the document.
    const NAME: &'static str = "versions";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        match node.ask(&Request::Version {})? {
            Answer::Version(agent) => Ok(Report {
                tweedctl: VERSION.to_owned(),
                agent,
            }),
            _ => Err(unexpected()),
        }
    }

    fn arguments(&self) -> Vec<String> {
        vec!["version".to_owned()]
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        for (node, answer) in answers {
            let on = if node.is_empty() {
                String::new()
            } else {
                format!(" on {node}")
            };
            page.line(&match answer {
                Ok(report) => format!("tweed-agent{on} {}", report.agent),
                Err(why) => format!("tweed-agent{on}: {why}"),
            })?;
        }
        Ok(())
    }
}
