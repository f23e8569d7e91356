//! One agent for one node: a lock in the run folder.
//!
//! Two agents with the same flags would only do the same work twice; with
//! different ones they would undo each other's for ever.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tweed_core::paths::AGENT_LOCK;

/// How long an agent that is about to end may take to do so.
const HANDOVER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// Why this agent cannot be the only one.
#[derive(Debug, thiserror::Error)]
pub enum SoleError {
    /// Another one runs.
    #[error(
        "another tweed-agent (process {process}) keeps this node, it holds {path}: stop it, or give this one another --run-dir if it serves another node"
    )]
    Taken {
        /// The lock.
        path: PathBuf,
        /// The other's number, as it wrote it.
        process: String,
    },
    /// The lock cannot be used.
    #[error("cannot lock {path}: {source}")]
    Unusable {
        /// The lock.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Held for as long as this agent runs; the kernel lets go of it however that
/// ends.
#[derive(Debug)]
pub struct Sole(#[expect(dead_code, reason = "an open file is the lock")] File);

impl Sole {
    /// Takes the lock `<run_dir>/agent.lock`, and waits for an agent that is
    /// about to end.
    ///
    /// # Errors
    /// [`SoleError`].
    pub async fn take(run_dir: &Path) -> Result<Self, SoleError> {
        Self::within(run_dir, HANDOVER).await
    }

    async fn within(run_dir: &Path, patience: Duration) -> Result<Self, SoleError> {
        let path = run_dir.join(AGENT_LOCK);
        let unusable = |source| SoleError::Unusable {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(run_dir).map_err(unusable)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable)?;
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(unusable(source)),
                Err(TryLockError::WouldBlock) if tokio::time::Instant::now() >= deadline => {
                    let mut process = String::new();
                    // The number is for people: without it the lock is still held.
                    let _ = file.read_to_string(&mut process);
                    let process = process.trim().to_owned();
                    return Err(SoleError::Taken { path, process });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(POLL).await,
            }
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(unusable)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_is_told_of_the_first_and_follows_it() {
        let run_dir = tempfile::tempdir().unwrap();
        let first = Sole::take(run_dir.path()).await.unwrap();
        let second = Sole::within(run_dir.path(), Duration::ZERO).await;
        let said = second.unwrap_err().to_string();
        assert!(said.contains(&std::process::id().to_string()), "{said}");
        assert!(said.contains("agent.lock"), "{said}");
        drop(first);
        Sole::within(run_dir.path(), Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_named() {
        let said = Sole::take(Path::new("/dev/null/x")).await.unwrap_err();
        assert!(
            said.to_string().contains("/dev/null/x/agent.lock"),
            "{said}"
        );
    }
}
