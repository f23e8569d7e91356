//! etcd and the API server, which can also run without the rest of the control plane.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::host::{Host, check_running};
use crate::config::{self, Audit};
use crate::daemon::Daemon;
use crate::kubectl::Kubectl;
use crate::spec::NodeSpec;
use tweed_lab::LabError;

/// Maximum time until the API server is ready; long enough for a machine that
/// compiles at the same time.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Handles to the two programs.
#[derive(Debug)]
pub(crate) struct ApiServer {
    host: Host,
    node: NodeSpec,
    etcd: Daemon,
    api_server: Daemon,
}

impl ApiServer {
    /// Handles to programs that may not run yet, in the namespace of `node`.
    pub(crate) fn new(host: Host, node: NodeSpec) -> Self {
        Self {
            etcd: host.daemon("etcd"),
            api_server: host.daemon("kube-apiserver"),
            node,
            host,
        }
    }

    /// Where they run.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The files of the audit log.
    pub(crate) fn audit(&self) -> Audit {
        Audit {
            policy: self.host.folder.join("audit-policy.json"),
            log: self.host.folder.join("audit.log"),
        }
    }

    /// Starts both programs; the API server is ready when this returns.
    pub(crate) fn start(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        let data = self.host.folder.join("data");
        fs::create_dir_all(&data).map_err(|e| LabError::file("create", &data, e))?;
        let Audit { policy, .. } = self.audit();
        fs::write(&policy, config::audit_policy().to_string())
            .map_err(|e| LabError::file("write", &policy, e))?;
        self.host.launch(&self.etcd, config::etcd(&data))?;
        self.start_again(kubectl)
    }

    /// Starts the API server on etcd's data, and waits until it is ready.
    pub(crate) fn start_again(&self, kubectl: &Kubectl) -> Result<(), LabError> {
        let file = |name: &str| self.host.file(name);
        let dual_stack = self.host.dual_stack;
        let arguments = config::api_server(&self.node, &self.audit(), dual_stack, &file);
        self.host.launch(&self.api_server, arguments)?;
        let what = "the API server to be ready";
        kubectl.wait_for(what, START_LIMIT, || {
            if let Err(ended) = self.check() {
                return Ok(Err(ended));
            }
            match kubectl.sh("get --raw /readyz") {
                Ok(_) => Ok(Ok(())),
                Err(error) => Err(format!("{}; {}", error.chain(), self.api_server.log_tail())),
            }
        })?
    }

    /// Stops the API server; etcd keeps running with its data.
    pub(crate) fn stop(&self, signal: Signal) -> Result<(), LabError> {
        self.api_server.stop(signal)
    }

    /// Fails with the log of a program that does not run.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        check_running([&self.etcd, &self.api_server])
    }
}
