//! A real Kubernetes cluster on this machine, for the end-to-end tests and to work
//! with.
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler run in the
//! network namespace of the control-plane node; every node is a set of
//! namespaces with containerd, kubelet and kube-proxy. The nodes are connected
//! to the same [`Underlay`](tweed_lab::Underlay) as those of the other tests:
//! strict `rp_filter`, and a switch that drops foreign sources.
//!
//! ```text
//! cluster      a cluster: starting it, adding, rebooting and removing nodes
//! spec         its size, network and addresses
//! context      what all parts of one cluster use
//! machine      one node: its namespaces and programs
//! disk         the files of a node that stay when it is rebooted
//! control      the four programs of the control plane
//! config       configs and arguments of all programs
//! daemon       a long-running program
//! pki          certificates
//! network      the reference plugins
//! kubectl      calls of kubectl
//! inotify      whether enough inotify instances are left
//! report       the cluster's state, for the diagnosis of a failure
//! programs     where Kubernetes' programs and images are
//! ```
//!
//! All of it belongs to a [`Lab`](tweed_lab::Lab) and is removed with it, also after
//! a kill -9. The machine itself is not changed: nodes write to a tmpfs, and the
//! few sysctls that kubelet sets for a whole machine are bind-mounted files.
//!
//! ```no_run
//! # fn main() -> Result<(), tweed_lab::LabError> {
//! use std::time::Duration;
//! use tweed_lab_kubernetes::{Cluster, Spec};
//!
//! let cluster = Cluster::up("example", Spec::default(), Box::new(|_| {}))?;
//! cluster.kubectl().sh("run web --image=localhost/agnhost:lab")?;
//! cluster.kubectl().wait_ready("web", Duration::from_secs(30))?;
//! # Ok(())
//! # }
//! ```
//!
//! Needs what `conformance/setup.sh e2e` builds. It supports cgroups of version 1
//! and 2, but has only run with version 1.

mod cluster;
mod config;
mod context;
mod control;
mod daemon;
mod disk;
mod inotify;
mod kubectl;
mod machine;
mod network;
mod pki;
mod programs;
mod report;
mod spec;

pub use cluster::{Cluster, ProgressFn};
pub use config::STATIC_PODS;
pub use kubectl::{Kubectl, condition};
pub use machine::{Component, Machine};
pub use report::Report;
pub use spec::{
    CONTROL, Network, NodeSpec, POD_CIDR, ProxyMode, SERVICE_CIDR, SERVICE_OF_API, SERVICE_OF_DNS,
    Spec,
};
