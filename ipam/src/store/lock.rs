//! The lock of the store: exclusive, with a deadline, the same file as host-local's.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{io, path::Path};

use super::{StoreError, alarm::Alarm, open::options};

/// Which other locks a lock excludes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// All other locks.
    Exclusive,
    /// Exclusive locks.
    Shared,
}

/// What a lock is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To add, which needs a folder that can be written.
    Add,
    /// To free. There may be nothing to free, so a folder that cannot be written is
    /// no error yet: flock(2) also locks a file that is open for reading.
    Free,
}

/// Opens the file of a lock. One that exists needs no space; it is created if it
/// does not.
fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    let mut how = options();
    how.read(true).write(true).create(true).truncate(false);
    match how.open(path) {
        Err(error)
            if purpose == Purpose::Free && error.kind() == io::ErrorKind::ReadOnlyFilesystem =>
        {
            options().read(true).open(path)
        }
        opened => opened,
    }
}

/// Takes the lock at `path` within `wait`. It is held until the file is dropped,
/// or its process ends.
pub(super) fn take(path: &Path, wait: Duration, purpose: Purpose) -> Result<File, StoreError> {
    let begin = Instant::now();
    loop {
        let file = open(path, purpose).map_err(StoreError::io("open", path))?;
        let is_locked =
            wait_for(&file, Mode::Exclusive, begin + wait).map_err(StoreError::io("lock", path))?;
        if !is_locked {
            return Err(StoreError::LockTimeout {
                path: path.to_owned(),
                waited: begin.elapsed(),
            });
        }
        // The file may have been removed since it was opened: then the next process
        // creates another one, and this lock excludes nothing.
        if is_at(&file, path).map_err(StoreError::io("look up", path))? {
            return Ok(file);
        }
    }
}

/// Waits for the lock of `file` until `deadline`; returns whether it was taken.
pub(super) fn wait_for(file: &File, mode: Mode, deadline: Instant) -> io::Result<bool> {
    let immediate = match mode {
        Mode::Exclusive => file.try_lock(),
        Mode::Shared => file.try_lock_shared(),
    };
    match immediate {
        Ok(()) => return Ok(true),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let _alarm = Alarm::at(deadline)?;
    loop {
        let waited = match mode {
            Mode::Exclusive => file.lock(),
            Mode::Shared => file.lock_shared(),
        };
        match waited {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) if Instant::now() >= deadline => return Ok(false),
            Err(_) => {}
        }
    }
}

/// Whether `file` is what `path` names.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{SigSet, Signal};

    use super::*;

    #[test]
    fn a_file_that_was_removed_or_replaced_is_not_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        File::create(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
    }

    /// A runtime may start the plugin with the signal blocked.
    #[test]
    fn the_wait_ends_where_the_alarm_s_signal_is_blocked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = take(&path, Duration::ZERO, Purpose::Add).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            SigSet::from(Signal::SIGURG).thread_block().unwrap();
            let _ = sender.send(take(&path, Duration::from_millis(20), Purpose::Add).map(drop));
        });
        let waited = receiver.recv_timeout(Duration::from_secs(60));
        assert!(
            matches!(waited, Ok(Err(StoreError::LockTimeout { .. }))),
            "{waited:?}"
        );
        drop(held);
    }
}
