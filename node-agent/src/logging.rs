//! Log lines on stderr, as text or as JSON.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::TryInitError;

use crate::config::LogFormat;

/// Libraries that log each failed attempt are off: the agent itself logs what
/// failed, on which object, once. Later directives take precedence, so
/// `--log-level` can switch them on.
const QUIET: &str = "kube_client=off,tower=off,hyper_util=off";

/// Logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level is not valid.
    #[error("cannot read the log level {level:?}")]
    Level {
        /// The level as given.
        level: String,
        /// Why it is not valid.
        source: ParseError,
    },
    /// The process has another logger already.
    #[error("cannot take over the process's log")]
    Taken(#[from] TryInitError),
}

/// Starts logging to stderr. `level` is a level or a list of directives, as
/// `--log-level` takes it.
///
/// # Errors
/// [`LoggingError`].
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
