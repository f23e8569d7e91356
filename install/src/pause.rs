//! Doing nothing, until told to end.

use nix::sys::signal::{SigSet, Signal};

use crate::error::InstallError;

/// Waits for SIGTERM or SIGINT. They are blocked and taken, not handled: the
/// first process of a container has no other way to get them.
///
/// # Errors
/// [`InstallError::Signals`].
pub fn until_told() -> Result<(), InstallError> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    signals.thread_block().map_err(InstallError::Signals)?;
    signals.wait().map(drop).map_err(InstallError::Signals)
}
