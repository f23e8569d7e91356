//! The error of the lab and of its Kubernetes cluster.

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
    /// A program printed something unexpected.
    #[error("`{command}` did not print {expected}: {output:?}")]
    Output {
        /// The command line.
        command: String,
        /// What was expected.
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
    /// A program that the lab runs does not exist.
    #[error("{program} is missing in {}: {cure}", folder.display())]
    MissingProgram {
        /// Its name.
        program: String,
        /// Where it was looked for.
        folder: PathBuf,
        /// The command that installs it.
        cure: &'static str,
    },
    /// A lab of that name exists already.
    #[error(
        "the lab {name} exists already, {state}; inspect it with `ip netns`, \
         or remove it with `make demo-down` (a cluster: `tweed-lab cluster down --name {name}`)"
    )]
    Exists {
        /// The lab's name.
        name: String,
        /// Who created it, and whether that process still runs.
        state: String,
    },
    /// There is no lab of that name that was kept.
    #[error("there is no kept lab {name}; `tweed-lab cluster list` lists all labs")]
    Absent {
        /// The lab's name.
        name: String,
    },
    /// A certificate could not be created.
    #[error("could not create a certificate for {subject}")]
    Certificate {
        /// Who the certificate is for.
        subject: String,
        /// The error of the crate that creates certificates.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A cluster has no such node.
    #[error("the cluster has no node {name}, only {}", known.join(", "))]
    NoSuchNode {
        /// The unknown name.
        name: String,
        /// The nodes that it has.
        known: Vec<String>,
    },
    /// A long-running program of a cluster has ended by itself.
    #[error("{program} has ended; {log_tail}")]
    Ended {
        /// Its name, and its node's.
        program: String,
        /// The path of its log, and the last lines of it.
        log_tail: String,
    },
    /// This user may not open as many inotify instances as are needed.
    #[error(
        "{needed} more inotify instances are needed, and {used} of {limit} are in use: remove a \
         cluster (`tweed-lab cluster list` lists them), or raise the limit, for example by \
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
    /// The user is not root.
    #[error("the lab creates network namespaces: run it as root, or with sudo")]
    NotRoot,
    /// A name is not allowed.
    #[error("the lab cannot use the name {name:?}: {why}")]
    Name {
        /// The refused name.
        name: String,
        /// The rule that it violates.
        why: &'static str,
    },
    /// An expected state was not reached in time.
    #[error("timed out after {seconds} s waiting for {what}; last seen: {last}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// The limit in seconds.
        seconds: u64,
        /// What the last check saw instead.
        last: String,
    },
}

impl LabError {
    /// A failed file operation; `action` is a verb, as in "could not read".
    #[must_use]
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// That of a program that failed, with another text of its command.
    pub(crate) fn with_command(mut self, other: impl FnOnce(&str) -> String) -> Self {
        if let Self::Failed { command, .. } = &mut self {
            *command = other(command);
        }
        self
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
