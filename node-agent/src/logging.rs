//! Log lines to stderr, for people or as JSON.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::TryInitError;

use crate::config::LogFormat;

/// Libraries that log each failed try: the agent says itself what fails, on
/// what, and once. Later directives win, so `--log-level` can ask for them.
const QUIET: &str = "kube_client=off,tower=off,hyper_util=off";

/// Logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level is none.
    #[error("cannot read the log level {level:?}")]
    Level {
        /// What was asked for.
        level: String,
        /// Why it is none.
        source: ParseError,
    },
    /// Something in the process logs already.
    #[error("cannot take over the process's log")]
    Taken(#[from] TryInitError),
}

/// Sends what is logged from now on to stderr. `level` is a level or a list of
/// directives, as `--log-level` takes it.
///
/// # Errors
/// When `level` is none, or the process logs already.
pub fn start(format: LogFormat, level: &str) -> Result<(), LoggingError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter =
        EnvFilter::try_new(format!("{QUIET},{level}")).map_err(|source| LoggingError::Level {
            level: level.to_owned(),
            source,
        })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal());
    match format {
        LogFormat::Text => lines.with_target(false).finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
