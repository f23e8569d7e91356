//! Log lines on stderr, as text or as JSON.

use std::io::{IsTerminal, stderr};

use anyhow::Context as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, log_filter};

/// Libraries that log each failed attempt are off: the agent itself logs what
/// failed, on which object, once. Later directives take precedence, so
/// `--log-level` can switch them on.
const QUIET: &str = "kube_client=off,tower=off,hyper_util=off";

/// Starts logging to stderr. `level` is a level or a list of directives, as
/// `--log-level` takes it.
///
/// # Errors
/// The level is not valid, or the process has another logger already.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = log_filter(&format!("{QUIET},{level}"))
        .with_context(|| format!("cannot read the log level {level:?}"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        // A line that cannot be written, as on a disk that is full, is lost. The library
        // would say so on stderr, and panic because it cannot.
        .log_internal_errors(false)
        .with_ansi(stderr().is_terminal());
    let started = match format {
        LogFormat::Text => lines.with_target(false).finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    started.context("cannot take over the process's log")
}
