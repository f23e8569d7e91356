//! Where the programs of a control plane run: a network namespace, their
//! certificates, and a folder for what they write.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::Daemon;
use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use tweed_lab::Lab;
use tweed_lab::LabError;

/// The ground that a control plane stands on.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) lab: Lab,
    pub(crate) programs: KubernetesPrograms,
    pub(crate) pki: Pki,
    pub(crate) netns: PathBuf,
    /// Where logs and data are.
    pub(crate) folder: PathBuf,
}

impl Host {
    /// Names a program of it; nothing is started.
    pub(crate) fn daemon(&self, name: &'static str) -> Daemon {
        Daemon::new(&self.folder, name)
    }

    /// Starts a program in the namespace.
    pub(crate) fn launch(&self, daemon: &Daemon, arguments: Vec<String>) -> Result<(), LabError> {
        let program = self.programs.program(daemon.name())?;
        let mut command = in_netns(&self.netns, &program);
        daemon.start(&self.lab, command.args(arguments))
    }

    /// The path of a certificate's file, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        self.pki.path(name).display().to_string()
    }
}

/// That all of these run.
pub(crate) fn check_running<'a>(
    daemons: impl IntoIterator<Item = &'a Daemon>,
) -> Result<(), LabError> {
    match daemons.into_iter().find(|daemon| !daemon.is_running()) {
        None => Ok(()),
        Some(daemon) => Err(ended(daemon)),
    }
}

/// The error that says so of a program, with its last words.
pub(crate) fn ended(daemon: &Daemon) -> LabError {
    LabError::Ended {
        program: daemon.name().to_owned(),
        last_words: daemon.last_words(),
    }
}

fn in_netns(netns: &Path, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", netns.display()))
        .arg(program);
    command
}
