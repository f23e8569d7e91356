//! Commands that ask the running agent of this node over its socket and print the
//! answer: what they have in common.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use tweed_component::explain::{Question, text};
use tweed_component::message::{Answer, Request};
use tweed_core::agent_socket::client::{ClientError, Connection};
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
    /// Asks the agent and prints its answer.
    ///
    /// # Errors
    /// The agent is not running, or does not answer the question, or this process is not
    /// root.
    pub fn run(&self, question: Question) -> Result<()> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let asked = Connection::ask(&self.run_dir, &Request::Explain(question));
        let connection = asked.map_err(|error| match error {
            ClientError::NotRunning { .. } => anyhow!(
                "{error}; or it runs with --policy off and --services off, or with another --run-dir"
            ),
            other => other.into(),
        })?;
        let steps = match connection.answer(deadline)? {
            Answer::Explained(steps) => steps,
            Answer::Error { message } => bail!("tweed-agent answers: {message}"),
            Answer::Version(_) => bail!("tweed-agent answers another question"),
        };
        let text = if self.json {
            serde_json::to_string_pretty(&steps).context("cannot write JSON")? + "\n"
        } else {
            text(&steps)
        };
        let written = std::io::stdout().lock().write_all(text.as_bytes());
        written.context("cannot write to stdout")
    }
}
