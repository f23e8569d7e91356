//! The agent of this node, asked on its socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tweed_component::message::{Answer, Request};
use tweed_core::agent_socket::client::{ClientError, Connection};

use crate::answered::Unanswered;

/// Maximum time for the answer. The agent answers at once, unless it is planning.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A node on which this program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Folder of the state of agent and plugin.
    pub run_dir: PathBuf,
}

impl Node {
    /// Asks the running agent.
    ///
    /// # Errors
    /// It is not running, does not answer or does not know the question, or this process is
    /// not root.
    pub fn ask(&self, request: &Request) -> Result<Answer, Unanswered> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let connection = Connection::ask(&self.run_dir, request).map_err(said)?;
        match connection.answer(deadline).map_err(said)? {
            Answer::Error { message } => Err(Unanswered::refused(format!(
                "tweed-agent answers: {message}"
            ))),
            answer => Ok(answer),
        }
    }
}

/// An answer to another question than the one that was asked.
pub fn unexpected() -> Unanswered {
    Unanswered::new("tweed-agent answers another question")
}

fn said(error: ClientError) -> Unanswered {
    let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    match &error {
        ClientError::Io { source, .. } if denied(source) => Unanswered::refused(format!(
            "{error}: only root may ask the agent, so run this as root"
        )),
        ClientError::NotRunning { .. } => {
            Unanswered::new(format!("{error}; or it runs with another --run-dir"))
        }
        _ => Unanswered::new(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn who_is_not_root_is_refused_and_the_agent_is_not_silent() {
        let failed = |kind: ErrorKind| {
            said(ClientError::Io {
                operation: "connect to",
                path: "/run/tweed/agent.sock".into(),
                source: Error::from(kind),
            })
        };
        let denied = failed(ErrorKind::PermissionDenied);
        assert!(
            denied.is_refusal && denied.error.contains("as root"),
            "{denied}"
        );
        assert!(!failed(ErrorKind::ConnectionReset).is_refusal);
    }
}
