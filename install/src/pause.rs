//! Doing nothing, until told to end.

use nix::sys::signal::{SigSet, Signal};

use crate::error::InstallError;
use crate::journal::Journal;

/// Waits for SIGTERM or SIGINT, and says that it does. They are blocked and taken, not handled: the
/// first process of a container has no other way to get them.
///
/// # Errors
/// [`InstallError::Signals`].
pub fn until_told(journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    signals.thread_block().map_err(InstallError::Signals)?;
    journal.line("nothing is left to do: waiting for SIGTERM");
    signals.wait().map(drop).map_err(InstallError::Signals)
}
