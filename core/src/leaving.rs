//! Who deletes the leaving links, those of removed pods: one process at a time,
//! the one that holds the lock on [`LOCK_FILE`]. Plugins and agents of neighbouring
//! versions follow this rule. The kernel releases the lock when its process ends.
//!
//! The file says which process a plugin started last for this ([`Cleanup`]) and, while
//! that process is at work, for which network namespace. A DEL that finds the lock held
//! relies on the holder only if the file names the DEL's own namespace. So who takes
//! the lock removes what the file says of a namespace, and a process that a plugin has
//! started removes it again before it releases the lock. Where the file says nothing,
//! DELs delete their links themselves.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::{fmt, io, path::Path};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use crate::{limits, regular_file};

/// Name of the file in the run folder whose lock is held by who deletes leaving
/// links.
pub const LOCK_FILE: &str = "leaving.lock";

/// Takes the lock, which is held until the returned file is dropped; none if
/// another process holds it. `folder` is the run folder. The file names no network
/// namespace then.
///
/// # Errors
/// When the file cannot be opened or locked.
pub fn try_lock_cleanup(folder: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // NONBLOCK: a FIFO in place of the file is refused, not waited for.
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(folder.join(LOCK_FILE))?;
    let file = regular_file::checked(file)?;
    match file.try_lock() {
        Ok(()) => {
            if let Some(killed) = Cleanup::read(folder).filter(|it| it.netns.is_some()) {
                // Where even this fails, which needs no space, a DEL may rely on the
                // caller, and the next DEL or the agent deletes its link.
                let _ = killed.ended().write(&file);
            }
            Ok(Some(file))
        }
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
    /// None when it no longer looks for more.
    pub netns: Option<u64>,
}

impl fmt::Display for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)?;
        self.netns.map_or(Ok(()), |netns| write!(f, " {netns}"))
    }
}

impl Cleanup {
    /// As the file in the run folder says; none if it says nothing.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = regular_file::read_text(&folder.join(LOCK_FILE), limits::LOCK).ok()?;
        // What follows the first line is left of a longer text.
        let mut words = text.lines().next()?.split(' ');
        Some(Self {
            pid: words.next()?.parse().ok()?,
            netns: words.next().and_then(|netns| netns.parse().ok()),
        })
    }

    /// The same process when it no longer looks for links.
    #[must_use]
    pub fn ended(self) -> Self {
        Self {
            netns: None,
            ..self
        }
    }

    /// Writes it to the file, which the caller has locked. A file that has any text
    /// can be written on a full disk too.
    ///
    /// # Errors
    /// The kernel's; then the file stays as it is.
    pub fn write(&self, lock: &File) -> io::Result<()> {
        let text = format!("{self}\n");
        lock.write_all_at(text.as_bytes(), 0)?;
        lock.set_len(text.len() as u64)
    }

    /// Whether it has ended and its parent does not look after it: it is a zombie.
    pub fn is_zombie(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The state follows the name in parentheses, which may hold anything.
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::netns;

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = try_lock_cleanup(folder.path()).unwrap().unwrap();
        assert!(try_lock_cleanup(folder.path()).unwrap().is_none());
        // Not dropped: a process that another test has just forked has a copy.
        lock.unlock().unwrap();
        assert!(try_lock_cleanup(folder.path()).unwrap().is_some());
    }

    #[test]
    fn the_file_says_who_was_started_last() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Cleanup::read(folder.path()), None);
        let lock = try_lock_cleanup(folder.path()).unwrap().unwrap();
        assert_eq!(Cleanup::read(folder.path()), None, "an empty file");
        for pid in [1_234_567, 7] {
            for netns in [Some(netns::own().unwrap()), None] {
                let cleanup = Cleanup { pid, netns };
                cleanup.write(&lock).unwrap();
                assert_eq!(Cleanup::read(folder.path()), Some(cleanup));
            }
        }
    }

    /// It was killed, or is of a version that does not remove it.
    #[test]
    fn the_namespace_of_an_earlier_holder_does_not_count_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let lock = try_lock_cleanup(folder.path()).unwrap().unwrap();
        let killed = Cleanup {
            pid: 7,
            netns: Some(1),
        };
        killed.write(&lock).unwrap();
        lock.unlock().unwrap();
        let _lock = try_lock_cleanup(folder.path()).unwrap().unwrap();
        assert_eq!(Cleanup::read(folder.path()), Some(killed.ended()));
    }

    /// This file cannot grow, as on a full disk where others take each free block.
    #[test]
    fn what_cannot_be_written_leaves_the_file_as_it_is() {
        let mut file = File::from(memfd_create("lock", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        let mut cleanup = Cleanup {
            pid: 7,
            netns: None,
        };
        cleanup.write(&file).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
        cleanup.pid = 1_234_567;
        cleanup.write(&file).unwrap_err();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "7\n");
    }

    #[test]
    fn a_process_that_nobody_waits_for_is_a_zombie() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let cleanup = Cleanup {
            pid: child.id(),
            netns: None,
        };
        while !cleanup.is_zombie() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!cleanup.is_zombie());
    }
}
