//! An API server without a cluster: etcd and kube-apiserver on a node that has
//! nothing else. For who wants Nodes without machines behind them.

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

/// The files that somebody shows who they are with.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The certificate of the authority.
    pub authority: PathBuf,
    /// Their own.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// All three for programs of Kubernetes.
    pub kubeconfig: PathBuf,
}

/// A running API server with RBAC, plugged into an underlay as the node
/// [`CONTROL`](super::CONTROL). It ends with its lab, and not before.
pub struct LoneApiServer {
    server: ApiServer,
    kubectl: Kubectl,
    address: Ipv4Addr,
    _netns: Netns,
}

impl LoneApiServer {
    /// That its programs are there.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] with how to get them.
    pub fn check_built(programs: &Programs) -> Result<(), LabError> {
        KubernetesPrograms::find(programs).map(drop)
    }

    /// Starts one, its data in memory; it answers when this returns. A lab has
    /// at most one.
    ///
    /// # Errors
    /// As [`LoneApiServer::check_built`]; [`LabError::Ended`] or
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
        let lone = Self {
            server: ApiServer::new(host, node),
            kubectl,
            address,
            _netns: netns,
        };
        lone.server.start(&lone.kubectl)?;
        Ok(lone)
    }

    /// Where it listens, on the underlay.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (self.address, API_PORT).into()
    }

    /// kubectl as its administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The number of kube-apiserver's process.
    ///
    /// # Errors
    /// [`LabError::Ended`] with the end of its log.
    pub fn pid(&self) -> Result<u32, LabError> {
        self.server.pid()
    }

    /// Who may do everything.
    #[must_use]
    pub fn administrator(&self) -> Credentials {
        self.credentials("admin")
    }

    /// A user of this name, who may do what RBAC gives them.
    ///
    /// # Errors
    /// The certificate cannot be made or written.
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

impl fmt::Debug for LoneApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoneApiServer")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
