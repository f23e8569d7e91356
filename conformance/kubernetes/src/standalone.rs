//! An API server without a cluster: only etcd and kube-apiserver, for tests with Nodes
//! that have no machines.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::control::{ApiServer, Host};
use crate::kubectl::Kubectl;
use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use crate::spec::{API_PORT, NodeSpec};
use tweed_lab::LabError;
use tweed_lab::Netns;
use tweed_lab::Programs;
use tweed_lab::Underlay;

/// The files with which a client authenticates.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The certificate of the certificate authority.
    pub authority: PathBuf,
    /// The client's certificate.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// All three in a kubeconfig.
    pub kubeconfig: PathBuf,
}

/// A running API server with RBAC, connected to an underlay as the node
/// [`CONTROL`](super::CONTROL). It runs until its lab is removed.
pub struct StandaloneApiServer {
    server: ApiServer,
    kubectl: Kubectl,
    address: Ipv4Addr,
    _netns: Netns,
}

impl StandaloneApiServer {
    /// Checks that its programs are built.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] with the command that builds them.
    pub fn check_built(programs: &Programs) -> Result<(), LabError> {
        KubernetesPrograms::find(programs).map(drop)
    }

    /// Starts one, with its data in memory; it is ready when this returns. A lab can
    /// have only one.
    ///
    /// # Errors
    /// As [`StandaloneApiServer::check_built`]; [`LabError::Ended`] or
    /// [`LabError::TimedOut`] with the end of a log.
    pub fn up(underlay: &Underlay) -> Result<Self, LabError> {
        let lab = underlay.lab();
        let programs = KubernetesPrograms::find(lab.programs())?;
        let node = NodeSpec::control();
        let address = node.address;
        let state = lab.tmpfs("state")?;
        let pki = Pki::create(&state.join("pki"), address)?;
        let netns = underlay.plug(&node.name, address, 1500)?;
        let kubectl = Kubectl::new(
            &netns.path(),
            programs.program("kubectl")?,
            pki.path("admin.kubeconfig"),
            state.join("kubectl-cache"),
        );
        let host = Host {
            lab: lab.clone(),
            programs,
            pki,
            netns: netns.path(),
            folder: state.join("control-plane"),
        };
        let started = Self {
            server: ApiServer::new(host, node),
            kubectl,
            address,
            _netns: netns,
        };
        started.server.start(&started.kubectl)?;
        Ok(started)
    }

    /// Its address and port on the underlay.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (self.address, API_PORT).into()
    }

    /// kubectl with the rights of an administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The process ID of kube-apiserver.
    ///
    /// # Errors
    /// [`LabError::Ended`] with the end of its log.
    pub fn pid(&self) -> Result<u32, LabError> {
        self.server.pid()
    }

    /// The credentials of an administrator.
    #[must_use]
    pub fn administrator(&self) -> Credentials {
        self.credentials("admin")
    }

    /// Creates the credentials of a user of this name, who has the rights that RBAC grants.
    ///
    /// # Errors
    /// The certificate cannot be created or written.
    pub fn add_user(&self, user: &str) -> Result<Credentials, LabError> {
        self.server.host().pki.add_user(user, self.address)?;
        Ok(self.credentials(user))
    }

    fn credentials(&self, file: &str) -> Credentials {
        let path = |name: &str| self.server.host().pki.path(name);
        Credentials {
            authority: path("ca.crt"),
            certificate: path(&format!("{file}.crt")),
            key: path(&format!("{file}.key")),
            kubeconfig: path(&format!("{file}.kubeconfig")),
        }
    }
}

impl fmt::Debug for StandaloneApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandaloneApiServer")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
