//! The lock `agent.lock` in the run folder: one agent for one node. Two agents
//! with different flags would undo each other's changes for ever, and an agent
//! would undo what `tweed-install uninstall` does, which takes the lock too.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use crate::{atomic_file::make_folder, limits, paths::AGENT_LOCK, regular_file};

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum InstanceLockError {
    /// An agent holds it.
    #[error("tweed-agent (process {process}) runs on this node and holds {}", path.display())]
    Taken {
        /// The lock.
        path: PathBuf,
        /// The agent's process ID, as it wrote it.
        process: String,
    },
    /// The file cannot be opened or locked.
    #[error("cannot {operation} {}: {source}", path.display())]
    Unusable {
        /// What failed: `open`, `lock`.
        operation: &'static str,
        /// The lock.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// The lock, held until this is dropped. The kernel releases it however the
/// process ends.
#[derive(Debug)]
pub struct InstanceLock(File);

impl InstanceLock {
    /// Takes the lock for an agent. Creates the file and its folder if they do
    /// not exist, and writes this process's ID into the file, if there is room for it: it
    /// is for a message only.
    ///
    /// # Errors
    /// [`InstanceLockError`].
    pub fn take(run_dir: &Path) -> Result<Self, InstanceLockError> {
        let path = run_dir.join(AGENT_LOCK);
        let open = || {
            make_folder(run_dir)?;
            let mut options = regular_file::options();
            options.read(true).write(true).create(true).truncate(false);
            Ok(regular_file::checked(options.mode(0o644).open(&path)?)?)
        };
        let mut lock = Self::lock(open().map_err(unusable("open", &path))?, &path)?;
        let file = &mut lock.0;
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", process::id()));
        Ok(lock)
    }

    /// Takes the lock so that no agent runs or starts meanwhile. `None` if the
    /// file does not exist: no agent was ever started.
    ///
    /// # Errors
    /// [`InstanceLockError`].
    pub fn take_existing(run_dir: &Path) -> Result<Option<Self>, InstanceLockError> {
        let path = run_dir.join(AGENT_LOCK);
        match regular_file::open(&path) {
            Ok(file) => Self::lock(file, &path).map(Some),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(unusable("open", &path)(error.into())),
        }
    }

    fn lock(file: File, path: &Path) -> Result<Self, InstanceLockError> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                // It is for the message only: without it the lock is still taken.
                let process = regular_file::rest(&file, limits::LOCK).unwrap_or_default();
                let process = String::from_utf8_lossy(&process);
                let process = match process.trim() {
                    "" => "of unknown ID",
                    // That of the machine is never an agent: a container has numbers of its own.
                    "1" => "1 of its container",
                    id => id,
                };
                Err(InstanceLockError::Taken {
                    path: path.to_owned(),
                    process: process.to_owned(),
                })
            }
            Err(TryLockError::Error(error)) => Err(unusable("lock", path)(error)),
        }
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // Closing the file is not enough while another thread starts a program: its
        // child has a copy of the file until exec. If unlocking fails, closing
        // releases the lock.
        let _ = self.0.unlock();
    }
}

fn unusable(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstanceLockError {
    let path = path.to_owned();
    move |source| InstanceLockError::Unusable {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_of_the_first_and_follows_it() {
        let run_dir = tempfile::tempdir().unwrap();
        assert!(
            InstanceLock::take_existing(run_dir.path())
                .unwrap()
                .is_none()
        );
        // What an agent with a longer number has left there does not stay behind it.
        std::fs::write(run_dir.path().join(AGENT_LOCK), "4194304, of before\n").unwrap();
        let first = InstanceLock::take(run_dir.path()).unwrap();
        let seconds = [
            InstanceLock::take(run_dir.path()).map(Some),
            InstanceLock::take_existing(run_dir.path()),
        ];
        for second in seconds {
            let said = second.unwrap_err().to_string();
            let named = format!("(process {})", process::id());
            assert!(said.contains(&named), "{said}");
            assert!(said.contains("agent.lock"), "{said}");
        }
        // As an agent writes it that is the first process of a container.
        std::fs::write(run_dir.path().join(AGENT_LOCK), "1\n").unwrap();
        let said = InstanceLock::take(run_dir.path()).unwrap_err().to_string();
        assert!(said.contains("(process 1 of its container)"), "{said}");
        drop(first);
        let second = InstanceLock::take_existing(run_dir.path()).unwrap();
        assert!(second.is_some());
        drop(second);
        InstanceLock::take(run_dir.path()).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let said = InstanceLock::take(Path::new("/dev/null/x")).unwrap_err();
        assert!(
            said.to_string().contains("/dev/null/x/agent.lock"),
            "{said}"
        );
    }
}
