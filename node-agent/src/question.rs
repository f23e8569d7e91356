//! Commands that ask the running agent of this node over its socket and print the
//! answer: what they have in common.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use serde::Serialize;
use tweed_core::agent_socket::client::{ClientError, Connection};
use tweed_core::agent_socket::message::{Answer, Request};
use tweed_core::paths::DEFAULT_RUN_DIR;

use crate::config::absolute;

/// Maximum time for the answer. The agent answers at once, unless it is planning.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// How a question is asked, and its answer printed.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Asking {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,

    /// Folder of the state of agent and plugin
    #[arg(long, env = "TWEED_RUN_DIR", value_name = "DIR", value_parser = absolute,
          default_value = DEFAULT_RUN_DIR)]
    run_dir: PathBuf,
}

impl Asking {
    /// Asks the agent, takes what `expected` finds in the answer, and prints it.
    ///
    /// # Errors
    /// The agent is not running, or does not answer the question, or this process is not
    /// root.
    pub fn run<T: Serialize>(
        &self,
        request: &Request,
        expected: impl FnOnce(Answer) -> Result<T, Box<Answer>>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        let answer = expected(ask(&self.run_dir, request)?).map_err(|other| match *other {
            Answer::Error { message } => anyhow!("tweed-agent answers: {message}"),
            other => anyhow!("tweed-agent answers something else: {other:?}"),
        })?;
        let text = match self.json {
            true => serde_json::to_string_pretty(&answer).context("cannot write JSON")? + "\n",
            false => text(&answer),
        };
        let written = std::io::stdout().lock().write_all(text.as_bytes());
        written.context("cannot write to stdout")
    }
}

fn ask(run_dir: &Path, request: &Request) -> Result<Answer> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let connection = Connection::ask(run_dir, request).map_err(|error| match error {
        ClientError::NotRunning { .. } => anyhow!(
            "{error}; or it runs with --policy off and --services off, or with another --run-dir"
        ),
        other => other.into(),
    })?;
    Ok(connection.answer(deadline)?)
}

/// Appends a line of an answer for people.
pub fn line(text: &mut String, indent: usize, content: &str) {
    text.push_str(&"  ".repeat(indent));
    // What others named must not look like lines of ours.
    text.extend(
        content
            .chars()
            .map(|c| if c.is_control() { '?' } else { c }),
    );
    text.push('\n');
}
