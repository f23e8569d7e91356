//! Who deletes the leaving links, those of removed pods: one process at a time,
//! the one that holds the lock on [`LOCK_FILE`]. Plugins and agents of neighbouring
//! versions follow this rule. The kernel releases the lock when its process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::{io, os::unix::fs::OpenOptionsExt, path::Path};

use nix::libc::O_NOFOLLOW;

/// Name of the file in the run folder whose lock is held by who deletes leaving
/// links.
pub const LOCK_FILE: &str = "leaving.lock";

/// Takes the lock, which is held until the returned file is dropped; none if
/// another process holds it. `folder` is the run folder.
///
/// # Errors
/// When the file cannot be opened or locked.
pub fn try_lock_cleanup(folder: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(folder.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = try_lock_cleanup(folder.path()).unwrap();
        assert!(lock.is_some());
        assert!(try_lock_cleanup(folder.path()).unwrap().is_none());
        drop(lock);
        assert!(try_lock_cleanup(folder.path()).unwrap().is_some());
    }
}
