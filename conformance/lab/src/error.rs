//! What can go wrong in the lab.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// A failed operation of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program could not be started.
    #[error("could not start `{command}`")]
    Start {
        /// The command line.
        command: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed, stderr first.
        output: String,
    },
    /// A program printed something else than what it is known for.
    #[error("`{command}` printed what is not {expected}: {output:?}")]
    Output {
        /// The command line.
        command: String,
        /// What was looked for.
        expected: &'static str,
        /// What it printed.
        output: String,
    },
    /// A file operation failed.
    #[error("could not {action} {}", path.display())]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A system call in or on a namespace failed.
    #[error("could not {action} in namespace {namespace}")]
    Namespace {
        /// The operation, as a verb.
        action: &'static str,
        /// The namespace's name.
        namespace: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The pings of a set cannot go on, or not begin.
    #[error("could not send pings and wait for their answers")]
    Pings {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A program that the lab runs is not there.
    #[error("{program} is missing in {}: {cure}", folder.display())]
    MissingProgram {
        /// Its name.
        program: String,
        /// Where it was looked for.
        folder: PathBuf,
        /// How to get it.
        cure: &'static str,
    },
    /// A lab of that name is there already.
    #[error(
        "the lab {name} is there already, {state}; look around with `ip netns`, \
         or take it away with `make demo-down` (a cluster: `tweed-lab cluster down --name {name}`)"
    )]
    Exists {
        /// The lab's name.
        name: String,
        /// Who made it and in which way it stands.
        state: String,
    },
    /// There is no lab of that name that was left up.
    #[error("no lab {name} is up; `tweed-lab cluster list` tells which clusters are")]
    Absent {
        /// The lab's name.
        name: String,
    },
    /// A certificate could not be made.
    #[error("could not make a certificate for {what}")]
    Certificate {
        /// Whose it was to be.
        what: String,
        /// The crate's answer.
        #[source]
        source: rcgen::Error,
    },
    /// A cluster has no such node.
    #[error("the cluster has no node {name}, only {}", known.join(", "))]
    NoSuchNode {
        /// The name asked for.
        name: String,
        /// The nodes that it has.
        known: Vec<String>,
    },
    /// A long-running program of a cluster has ended by itself.
    #[error("{program} has ended; {last_words}")]
    Ended {
        /// Its name, and its node's.
        program: String,
        /// Where its log is, and how that ends.
        last_words: String,
    },
    /// This user may not open as many inotify instances as are needed.
    #[error(
        "{needed} more inotify instances are needed, and {used} of {limit} are in use: take a \
         cluster down (`tweed-lab cluster list` tells which are up), or raise the limit, as with \
         `sysctl fs.inotify.max_user_instances=512`"
    )]
    Inotify {
        /// How many are needed.
        needed: usize,
        /// How many this user has open.
        used: usize,
        /// How many a user may have open.
        limit: usize,
    },
    /// Network namespaces need privilege.
    #[error("the lab makes network namespaces: run it as root, or with sudo")]
    NotRoot,
    /// A name breaks a rule.
    #[error("the lab cannot use the name {name:?}: {why}")]
    Name {
        /// The refused name.
        name: String,
        /// The broken rule.
        why: &'static str,
    },
    /// Something did not come about in time.
    #[error("waited {seconds} s in vain for {what}; last seen: {last}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// For how long, in seconds.
        seconds: u64,
        /// What was seen instead, the last time.
        last: String,
    },
}

impl LabError {
    /// A failed file operation; `action` is a verb, as in "could not read".
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// The error and its causes on one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause {
            text.push_str(": ");
            text.push_str(&next.to_string());
            cause = next.source();
        }
        text
    }
}
