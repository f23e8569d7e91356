//! A real Kubernetes cluster on this machine, for the end-to-end tests and for
//! people.
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler run in the
//! network namespace of the control-plane node; every node is a set of
//! namespaces with containerd, kubelet and kube-proxy. The nodes are plugged
//! into the same [`Underlay`](tweed_lab::Underlay) as those of the other tests:
//! strict `rp_filter`, and a switch that drops foreign sources.
//!
//! ```text
//! cluster    from nothing to Ready nodes; nodes come and go
//! spec       what it is to be, and who has which address
//! machine    one node: its namespaces and programs
//! disk       what outlives a node's reboot
//! control    the four programs of the control plane
//! lone       two of them, without any node
//! config     their configs and the nodes', as text
//! pki        certificates
//! network    tweed by its manifest, or the reference plugins
//! kubectl    how tests and people talk to it
//! inotify    whether the machine has enough of it
//! report     what a person needs when something fails
//! ```
//!
//! All of it belongs to a [`Lab`](tweed_lab::Lab) and is taken away like one, after
//! a kill -9 too. Nothing of the machine is changed: what nodes write goes to a
//! tmpfs, and the few sysctls that kubelet sets for a whole machine are files.
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
//! Needs what `conformance/setup.sh e2e` builds. cgroups of version 1 and 2
//! are both provided for; of the two, version 1 is the one it has run on.

mod cluster;
mod config;
mod control;
mod daemon;
mod disk;
mod inotify;
mod kubectl;
mod lone;
mod machine;
mod network;
mod pki;
mod programs;
mod report;
mod site;
mod spec;

pub use cluster::{Cluster, Say};
pub use config::STATIC_PODS;
pub use kubectl::{Kubectl, condition};
pub use lone::{Credentials, LoneApiServer};
pub use machine::{Component, Machine};
pub use report::Report;
pub use spec::{
    CONTROL, Network, NodeSpec, POD_CIDR, ProxyMode, SERVICE_CIDR, SERVICE_OF_API, SERVICE_OF_DNS,
    Spec,
};
