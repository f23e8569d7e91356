//! What all parts of one cluster use: its lab, programs, certificates and spec.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use crate::spec::{ProxyMode, Spec};
use tweed_lab::Cgroups;
use tweed_lab::Lab;
use tweed_lab::Underlay;

/// What all parts of one cluster use.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) lab: Lab,
    pub(crate) underlay: Underlay,
    pub(crate) programs: KubernetesPrograms,
    pub(crate) pki: Pki,
    pub(crate) cgroups: Cgroups,
    pub(crate) spec: Spec,
    /// What serves Services now, which starts as that of `spec`.
    pub(crate) proxy: Mutex<ProxyMode>,
    /// A folder for each node and for the control plane, on a tmpfs.
    pub(crate) state: PathBuf,
}

impl Context {
    /// What serves Services now.
    pub(crate) fn proxy(&self) -> ProxyMode {
        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the mode of kube-proxy, without restarting it.
    pub(crate) fn set_proxy(&self, mode: ProxyMode) {
        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }
}
