//! The lock that the agent holds: who has it knows that none runs, and that
//! none starts meanwhile.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use tweed_core::paths::AGENT_LOCK;

use crate::error::InstallError;

/// Held until dropped, or until this program ends.
#[derive(Debug)]
pub(super) struct AgentLock(#[expect(dead_code, reason = "an open file is the lock")] File);

impl AgentLock {
    /// Takes it; none where no agent was ever started.
    pub(super) fn take(run_dir: &Path) -> Result<Option<Self>, InstallError> {
        let path = run_dir.join(AGENT_LOCK);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(InstallError::file("open", &path)(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // The number is for people: without it the lock is still held.
                let _ = file.read_to_string(&mut process);
                let process = process.trim().to_owned();
                Err(InstallError::AgentRuns { path, process })
            }
            Err(TryLockError::Error(error)) => Err(InstallError::file("lock", &path)(error)),
        }
    }
}
