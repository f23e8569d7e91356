//! Who deletes the leaving links, those of removed pods: one process at a time,
//! the one that holds the lock on [`LOCK_FILE`]. Plugins and agents of neighbouring
//! versions follow this rule. The kernel releases the lock when its process ends.
//!
//! The file says which process a plugin started last for this, and for which network
//! namespace ([`Cleanup`]). Nothing depends on it being there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::{fmt, io, path::Path};

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

/// The process that a plugin started last to delete leaving links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// Its number, in the plugin's PID namespace.
    pub pid: u32,
    /// The network namespace whose links it deletes: [`netns::own`](crate::netns::own).
    pub netns: u64,
}

impl fmt::Display for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.netns)
    }
}

impl Cleanup {
    /// As the file in the run folder says; none if it says nothing.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(LOCK_FILE)).ok()?;
        let (pid, netns) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            netns: netns.parse().ok()?,
        })
    }

    /// Writes it to the file, which the caller has locked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, lock: &File) -> io::Result<()> {
        lock.set_len(0)?;
        lock.write_all_at(format!("{self}\n").as_bytes(), 0)
    }

    /// Whether it has ended and its parent does not look after it: it is a zombie.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The state follows the name in parentheses, which may hold anything.
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns;

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = try_lock_cleanup(folder.path()).unwrap();
        assert!(lock.is_some());
        assert!(try_lock_cleanup(folder.path()).unwrap().is_none());
        drop(lock);
        assert!(try_lock_cleanup(folder.path()).unwrap().is_some());
    }

    #[test]
    fn the_file_says_who_was_started_last() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Cleanup::read(folder.path()), None);
        let lock = try_lock_cleanup(folder.path()).unwrap().unwrap();
        assert_eq!(Cleanup::read(folder.path()), None, "an empty file");
        for pid in [1_234_567, 7] {
            let netns = netns::own().unwrap();
            let cleanup = Cleanup { pid, netns };
            cleanup.write(&lock).unwrap();
            assert_eq!(Cleanup::read(folder.path()), Some(cleanup));
        }
    }

    #[test]
    fn a_process_that_nobody_waits_for_is_a_zombie() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let cleanup = Cleanup {
            pid: child.id(),
            netns: 0,
        };
        while !cleanup.is_zombie() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!cleanup.is_zombie());
    }
}
