//! The file `policy` in the run folder, by which an ADD knows whether to wait until its
//! pod is enforced: [`POLICY_FILE`]. By what it says, the next agent knows of which kinds
//! the kernel has policies.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tweed_core::agent_state::POLICY_FILE;
use tweed_core::atomic_file::{PRIVATE, ReplaceError, replace};
use tweed_core::object::Object as _;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::problem::{Effect, Problem};
use tweed_core::{limits, regular_file};
use tweed_planner::policy::PolicyKinds;

use super::problems::unwritable;

/// For people: the plugin only looks whether the file is there.
const ABOUT: &str = "While this file exists, tweed asks the agent on agent.sock and waits until the network policies are enforced for a new pod. These are in force:";

/// The file, kept by who writes the rules of policy.
#[derive(Debug)]
pub struct PolicyMarker {
    path: PathBuf,
    /// The kinds that the file names.
    kinds: PolicyKinds,
}

impl PolicyMarker {
    /// The file of this run folder, as it is.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        let path = run_dir.join(POLICY_FILE);
        let kinds = match regular_file::read_text(&path, limits::STATE) {
            Ok(text) => kinds_of(&text),
            Err(error) if error.is_missing() => PolicyKinds::default(),
            Err(_) => ALL,
        };
        Self { path, kinds }
    }

    /// The kinds of which the kernel may have policies, as the file says.
    #[must_use]
    pub fn kinds(&self) -> PolicyKinds {
        self.kinds
    }

    /// Makes the file name these kinds, and says whether it was missing. Then the
    /// store has to be read before policies come into force: that read finds the record
    /// of an ADD that has not seen the file.
    ///
    /// # Errors
    /// It cannot be written. Then no ADD waits, and new pods are isolated for a moment
    /// after it.
    pub fn set(&mut self, kinds: PolicyKinds) -> Result<bool, Problem> {
        let is_missing = !self.path.exists();
        if is_missing || self.kinds != kinds {
            replace(&self.path, content(kinds).as_bytes(), PRIVATE).map_err(problem)?;
            self.kinds = kinds;
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

const ALL: PolicyKinds = PolicyKinds {
    network: true,
    cluster: true,
};

/// The content of the file: a line for each kind.
fn content(kinds: PolicyKinds) -> String {
    let PolicyKinds { network, cluster } = kinds;
    let kinds = [
        network.then_some(NetworkPolicy::KINDS),
        cluster.then_some(ClusterNetworkPolicy::KINDS),
    ];
    let lines = [ABOUT].into_iter().chain(kinds.into_iter().flatten());
    lines.map(|line| format!("{line}\n")).collect()
}

/// The kinds that the file names. One that names none is not ours: then any may be in
/// force.
fn kinds_of(text: &str) -> PolicyKinds {
    let has = |kind| text.lines().any(|line| line == kind);
    let kinds = PolicyKinds {
        network: has(NetworkPolicy::KINDS),
        cluster: has(ClusterNetworkPolicy::KINDS),
    };
    if kinds.network || kinds.cluster {
        kinds
    } else {
        ALL
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
        let mut marker = PolicyMarker::new(run_dir.path());
        marker.clear().unwrap();
        for is_new in [true, false] {
            assert_eq!(marker.set(ALL).unwrap(), is_new);
            assert!(path.exists());
        }
        // An agent that was killed has left it.
        PolicyMarker::new(run_dir.path()).clear().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn the_next_agent_reads_of_which_kinds_policies_are_in_force() {
        let run_dir = tempfile::tempdir().unwrap();
        let kinds = |network, cluster| PolicyKinds { network, cluster };
        let read = || PolicyMarker::new(run_dir.path()).kinds();
        assert_eq!(read(), kinds(false, false), "there is no file");
        for kinds in [kinds(true, false), kinds(true, true), kinds(false, true)] {
            let mut marker = PolicyMarker::new(run_dir.path());
            marker.set(kinds).unwrap();
            assert_eq!(marker.kinds(), kinds);
            assert_eq!(read(), kinds);
        }
        std::fs::write(run_dir.path().join("policy"), "").unwrap();
        assert_eq!(read(), ALL, "whoever wrote that");
    }
}
