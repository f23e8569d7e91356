//! The lock file: exclusive, with a deadline, shared with host-local.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::StoreError;

/// First and longest pause between two tries. flock(2) has no deadline of its
/// own, and a signal would be the whole process's affair.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(4));

/// Takes the lock at `path` within `wait`. It is held until the file is dropped,
/// or its process ends.
pub(super) fn take(path: &Path, wait: Duration) -> Result<File, StoreError> {
    let begin = Instant::now();
    let mut pause = PAUSE.0;
    loop {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .map_err(StoreError::io("open", path))?;
        match file.try_lock() {
            // Somebody may have removed the file since it was opened: then the
            // next process makes another, and this lock excludes nobody.
            Ok(()) if is_at(&file, path).map_err(StoreError::io("look at", path))? => {
                return Ok(file);
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path)(error)),
        }
        let waited = begin.elapsed();
        if waited >= wait {
            return Err(StoreError::LockTimeout {
                path: path.to_owned(),
                waited,
            });
        }
        std::thread::sleep(pause.min(wait - waited));
        pause = (pause * 2).min(PAUSE.1);
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
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
}
