//! The control plane: etcd, API server, controller manager and scheduler, as
//! processes in the network namespace of the control-plane node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::config;
use super::daemon::Daemon;
use super::kubectl::Kubectl;
use super::site::Site;
use super::spec::NodeSpec;
use crate::error::LabError;

/// From nothing to an API server that answers, on a machine that builds
/// beside it.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Handles to the four programs.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    site: Arc<Site>,
    folder: PathBuf,
    netns: PathBuf,
    node: NodeSpec,
    etcd: Daemon,
    api_server: Daemon,
    controller_manager: Daemon,
    scheduler: Daemon,
}

impl ControlPlane {
    /// Names them; nothing is started. `netns` is that of the node.
    pub(crate) fn new(site: &Arc<Site>, netns: PathBuf, node: NodeSpec) -> Self {
        let folder = site.state.join("control-plane");
        let daemon = |name| Daemon::new(&folder, name);
        Self {
            site: Arc::clone(site),
            netns,
            node,
            etcd: daemon("etcd"),
            api_server: daemon("kube-apiserver"),
            controller_manager: daemon("kube-controller-manager"),
            scheduler: daemon("kube-scheduler"),
            folder,
        }
    }

    /// Where the logs are: `<program>.log`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts all four; the API server answers when this returns.
    pub(crate) fn start(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        let data = self.folder.join("data");
        fs::create_dir_all(&data).map_err(|e| LabError::file("create", &data, e))?;
        self.launch(&self.etcd, config::etcd(&data))?;
        self.start_api_server(kubectl)?;
        let file = |name: &str| self.file(name);
        self.start_controller_manager(true)?;
        self.launch(&self.scheduler, config::scheduler(&file))
    }

    /// Restarts the controller manager; from now on new Nodes get their pod
    /// CIDRs from it, or do not.
    pub(crate) fn restart_controller_manager(&self, allocates: bool) -> Result<(), LabError> {
        self.controller_manager.stop(Signal::SIGKILL)?;
        self.start_controller_manager(allocates)
    }

    fn start_controller_manager(&self, allocates: bool) -> Result<(), LabError> {
        let arguments = config::controller_manager(&|name| self.file(name), allocates);
        self.launch(&self.controller_manager, arguments)
    }

    /// Starts the API server and waits until it answers.
    pub(crate) fn start_api_server(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        let arguments = config::api_server(&self.node, &|name| self.file(name));
        self.launch(&self.api_server, arguments)?;
        let what = "the API server to be ready";
        kubectl.wait_for(what, START_LIMIT, || {
            if let Err(ended) = self.check_running([&self.etcd, &self.api_server]) {
                return Ok(Err(ended));
            }
            match kubectl.sh("get --raw /readyz") {
                Ok(_) => Ok(Ok(())),
                Err(error) => Err(format!(
                    "{}; {}",
                    error.chain(),
                    self.api_server.last_words()
                )),
            }
        })?
    }

    /// Ends the API server; etcd and what has been written stay.
    pub(crate) fn stop_api_server(&self, signal: Signal) -> Result<(), LabError> {
        self.api_server.stop(signal)
    }

    /// That all four run.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.check_running([
            &self.etcd,
            &self.api_server,
            &self.controller_manager,
            &self.scheduler,
        ])
    }

    fn check_running<const N: usize>(&self, daemons: [&Daemon; N]) -> Result<(), LabError> {
        match daemons.into_iter().find(|daemon| !daemon.is_running()) {
            None => Ok(()),
            Some(ended) => Err(LabError::Ended {
                program: ended.name().to_owned(),
                last_words: ended.last_words(),
            }),
        }
    }

    fn launch(&self, daemon: &Daemon, arguments: Vec<String>) -> Result<(), LabError> {
        let program = self.site.programs.program(daemon.name())?;
        let mut command = in_netns(&self.netns, &program);
        daemon.start(&self.site.lab, command.args(arguments))
    }

    fn file(&self, name: &str) -> String {
        self.site.pki.path(name).display().to_string()
    }
}

fn in_netns(netns: &Path, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", netns.display()))
        .arg(program);
    command
}
