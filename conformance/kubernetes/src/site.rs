//! What the parts of one cluster share: where it is, and what it runs.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use crate::spec::{ProxyMode, Spec};
use tweed_lab::Cgroups;
use tweed_lab::Lab;
use tweed_lab::Underlay;

/// The ground that a cluster stands on.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) underlay: Underlay,
    pub(crate) programs: KubernetesPrograms,
    pub(crate) pki: Pki,
    pub(crate) cgroups: Cgroups,
    pub(crate) spec: Spec,
    /// kube-proxy's mode now: at first that of `spec`.
    pub(crate) proxy: Mutex<ProxyMode>,
    /// A folder for each node and for the control plane, on a tmpfs.
    pub(crate) state: PathBuf,
}

impl Site {
    /// kube-proxy's mode now.
    pub(crate) fn proxy(&self) -> ProxyMode {
        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes another mode for kube-proxy.
    pub(crate) fn set_proxy(&self, mode: ProxyMode) {
        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }
}
