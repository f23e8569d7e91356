//! The control plane: etcd, API server, controller manager and scheduler, as
//! processes in the network namespace of the control-plane node.

mod api_server;
mod host;

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::config::{self, Controllers};
use crate::daemon::Daemon;
use crate::kubectl::Kubectl;
use crate::spec::NodeSpec;
use host::check_running;
use tweed_lab::LabError;

pub(crate) use api_server::ApiServer;
pub(crate) use host::Host;

/// Handles to the four programs.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    api: ApiServer,
    controller_manager: Daemon,
    scheduler: Daemon,
}

impl ControlPlane {
    /// Handles to programs that may not run yet, in the namespace of `node`.
    pub(crate) fn new(host: Host, node: NodeSpec) -> Self {
        Self {
            controller_manager: host.daemon("kube-controller-manager"),
            scheduler: host.daemon("kube-scheduler"),
            api: ApiServer::new(host, node),
        }
    }

    /// The folder of the logs, `<program>.log`.
    pub(crate) fn folder(&self) -> &Path {
        &self.host().folder
    }

    /// The API server's audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.api.audit().log
    }

    /// Starts all four programs; the API server is ready when this returns.
    pub(crate) fn start(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        self.api.start(kubectl)?;
        self.start_controller_manager(&Controllers::default())?;
        let arguments = config::scheduler(&|name| self.host().file(name));
        self.host().launch(&self.scheduler, arguments)
    }

    /// Restarts the controller manager.
    pub(crate) fn restart_controller_manager(&self, how: &Controllers) -> Result<(), LabError> {
        self.controller_manager.stop(Signal::SIGKILL)?;
        self.start_controller_manager(how)
    }

    fn start_controller_manager(&self, how: &Controllers) -> Result<(), LabError> {
        let arguments =
            config::controller_manager(&|name| self.host().file(name), how, self.host().dual_stack);
        self.host().launch(&self.controller_manager, arguments)
    }

    /// Starts the API server again and waits until it is ready.
    pub(crate) fn start_api_server(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        self.api.start_again(kubectl)
    }

    /// Stops the API server; etcd keeps running with its data.
    pub(crate) fn stop_api_server(&self, signal: Signal) -> Result<(), LabError> {
        self.api.stop(signal)
    }

    /// Fails with the log of a program that does not run.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.api.check()?;
        check_running([&self.controller_manager, &self.scheduler])
    }

    fn host(&self) -> &Host {
        self.api.host()
    }
}
