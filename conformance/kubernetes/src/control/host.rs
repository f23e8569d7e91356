//! The place where the programs of a control plane run: a network namespace, their
//! certificates, and a folder for logs and data.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::Daemon;
use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use tweed_lab::Lab;
use tweed_lab::LabError;

/// The place where the programs of a control plane run.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) lab: Lab,
    pub(crate) programs: KubernetesPrograms,
    pub(crate) pki: Pki,
    pub(crate) netns: PathBuf,
    /// The folder of logs and data.
    pub(crate) folder: PathBuf,
    /// Whether pods and Services have addresses of both families.
    pub(crate) dual_stack: bool,
}

impl Host {
    /// A handle to a program that may not run yet.
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

/// Fails with the log of the first program that does not run.
pub(crate) fn check_running<'a>(
    daemons: impl IntoIterator<Item = &'a Daemon>,
) -> Result<(), LabError> {
    match daemons.into_iter().find(|daemon| !daemon.is_running()) {
        None => Ok(()),
        Some(daemon) => Err(ended_error(daemon)),
    }
}

/// The error for a program that has ended, with the end of its log.
fn ended_error(daemon: &Daemon) -> LabError {
    LabError::Ended {
        program: daemon.name().to_owned(),
        log_tail: daemon.log_tail(),
    }
}

fn in_netns(netns: &Path, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", netns.display()))
        .arg(program);
    command
}
