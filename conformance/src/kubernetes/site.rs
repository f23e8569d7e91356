//! What the parts of one cluster share: where it is, and what it runs.

use std::path::PathBuf;

use super::pki::Pki;
use super::programs::KubernetesPrograms;
use super::spec::Spec;
use crate::cgroups::Cgroups;
use crate::lab::Lab;
use crate::underlay::Underlay;

/// The ground that a cluster stands on.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) underlay: Underlay,
    pub(crate) programs: KubernetesPrograms,
    pub(crate) pki: Pki,
    pub(crate) cgroups: Cgroups,
    pub(crate) spec: Spec,
    /// A folder for each node and for the control plane, on a tmpfs.
    pub(crate) state: PathBuf,
}
