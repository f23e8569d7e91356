//! Who deletes the links on their way out: one at a time, whoever holds the lock
//! on [`DUTY`]. Plugins and agents of neighbouring versions go by it, and the
//! lock goes with the process that holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::O_NOFOLLOW;

/// The file in the run folder whose lock is held by who is on duty.
pub const DUTY: &str = "leaving.lock";

/// Goes on duty, until what it gives is dropped; none if somebody else is.
/// `folder` is the run folder.
///
/// # Errors
/// When the file cannot be opened or locked.
pub fn go_on_duty(folder: &Path) -> io::Result<Option<File>> {
    let duty = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(folder.join(DUTY))?;
    match duty.try_lock() {
        Ok(()) => Ok(Some(duty)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_on_duty_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let on_duty = go_on_duty(folder.path()).unwrap();
        assert!(on_duty.is_some());
        assert!(go_on_duty(folder.path()).unwrap().is_none());
        drop(on_duty);
        assert!(go_on_duty(folder.path()).unwrap().is_some());
    }
}
