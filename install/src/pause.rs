//! Waiting for a signal.

use nix::sys::signal::{SigSet, Signal};

use crate::{error::InstallError, journal::Journal};

/// Waits for SIGTERM or SIGINT. The signals are blocked and waited for, not
/// handled: the kernel does not deliver a signal without a handler to the first
/// process of a container.
///
/// # Errors
/// They cannot be waited for.
pub fn until_signal(journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    let failed = |error| InstallError::Other(format!("cannot wait for a signal: {error}"));
    signals.thread_block().map_err(failed)?;
    journal.line("all done; waiting for SIGTERM");
    signals.wait().map(drop).map_err(failed)
}
