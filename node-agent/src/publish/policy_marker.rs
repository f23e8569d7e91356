//! The file `policy` in the run folder, by which an ADD knows whether to wait until its
//! pod is judged: [`POLICY_FILE`].

use std::path::{Path, PathBuf};
use std::{fs, io};

use tweed_core::agent_state::POLICY_FILE;
use tweed_core::atomic_file::{PRIVATE, ReplaceError, replace};
use tweed_core::problem::{Effect, Problem};

use super::problems::unwritable;

/// For people: the plugin only looks whether the file is there.
const CONTENT: &[u8] =
    b"While this file exists, tweed asks the agent on agent.sock and waits until a new pod is judged by the network policies.\n";

/// The file, kept by who writes the rules of policy.
#[derive(Debug)]
pub struct PolicyMarker {
    path: PathBuf,
}

impl PolicyMarker {
    /// The file of this run folder, as it is.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        Self {
            path: run_dir.join(POLICY_FILE),
        }
    }

    /// Makes the file, unless it is there, and says whether it was missing. Then the
    /// store has to be read before policies come into force: that read finds the record
    /// of an ADD that has not seen the file.
    ///
    /// # Errors
    /// It cannot be written. Then no ADD waits, and new pods are isolated for a moment
    /// after it.
    pub fn set(&self) -> Result<bool, Problem> {
        let is_missing = !self.path.exists();
        if is_missing {
            replace(&self.path, CONTENT, PRIVATE).map_err(problem)?;
        }
        Ok(is_missing)
    }

    /// Removes the file, if it is there. This comes after the kernel has no rules of
    /// policy any more.
    ///
    /// # Errors
    /// It cannot be removed. Then each ADD asks the agent, which answers at once.
    pub fn clear(&self) -> Result<(), Problem> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(problem(ReplaceError::on("remove", &self.path)(error)))
            }
            _ => Ok(()),
        }
    }
}

/// No running pod is affected, and no new one is refused.
fn problem(error: ReplaceError) -> Problem {
    unwritable("--run-dir", &error).with_effect(Effect::Warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_there_from_set_to_clear() {
        let run_dir = tempfile::tempdir().unwrap();
        let path = run_dir.path().join("policy");
        let marker = PolicyMarker::new(run_dir.path());
        marker.clear().unwrap();
        for is_new in [true, false] {
            assert_eq!(marker.set().unwrap(), is_new);
            assert!(path.exists());
        }
        // An agent that was killed has left it.
        PolicyMarker::new(run_dir.path()).clear().unwrap();
        assert!(!path.exists());
    }
}
