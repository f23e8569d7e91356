//! The lab: nodes and pods as network namespaces on one machine.
//!
//! A [`Lab`] owns what it creates: namespaces, processes, one folder under
//! `/run/tweed-lab`. All of it is removed when the last handle is dropped, when
//! a test panics, and when the program gets SIGINT, SIGTERM or SIGHUP. The
//! folder is a journal: the next program finds and removes what a killed one
//! has left. Nothing is created in the machine's own network namespace.
//!
//! ```text
//! lab, teardown, signals   the journal, and how its content is removed
//! netns, underlay          namespaces, and the switch and router between them
//! node, pod, agent         a node with its agent, a pod
//! cluster, cluster_pods    several nodes whose agents read one node file, and their pods
//! manifest, objects        what is in that file: Nodes; Namespaces, Pods, policies
//! cnitool, plugin          calls of CNI plugins
//! ping, pinger, echo       traffic
//! capture, snapshot        packets and changes; all objects of a namespace
//! run, background          programs, run to their end or beside the lab
//! processor                whether the machine had time for what was waited for
//! realtime                 threads that do not wait for a processor
//! strace                   kills and errors at single system calls of a program
//! demo                     what `make demo` shows
//! ```
//!
//! ```no_run
//! # fn main() -> Result<(), tweed_lab::LabError> {
//! use tweed_lab::{Cluster, PingOptions, ping};
//!
//! let mut cluster = Cluster::start(2)?;
//! let here = cluster.pod(1, "here")?;
//! let there = cluster.pod(2, "there")?;
//! let report = ping(here.netns(), there.address(), &PingOptions::default())?;
//! assert_eq!(report.lost(), 0, "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Needs root, and the programs that `conformance/setup.sh` installs.

mod agent;
mod background;
mod capture;
mod cgroups;
mod cluster;
mod cluster_pods;
mod cnitool;
pub mod demo;
mod echo;
mod error;
mod lab;
mod manifest;
mod netns;
mod node;
mod objects;
mod ping;
mod pinger;
mod plugin;
mod pod;
mod processor;
mod programs;
pub mod realtime;
mod run;
mod signals;
mod snapshot;
mod strace;
mod teardown;
mod underlay;

pub use agent::{Agent, AgentOptions, all_have_fast_path};
pub use background::Background;
pub use capture::{Capture, capture, monitor};
pub use cgroups::Cgroups;
pub use cluster::{Cluster, ClusterNode};
pub use cluster_pods::ClusterPod;
pub use cnitool::{AddResult, AddedInterface, AddedIp, CniTool};
pub use echo::{EchoServer, Transport, receive, source_seen};
pub use error::LabError;
pub use lab::Lab;
pub use manifest::{NodeManifest, NodesFile};
pub use netns::Netns;
pub use node::{Node, NodeSpec};
pub use objects::{Objects, PodManifest, labels, namespace_manifest};
pub use ping::{PingOptions, PingReport, ping};
pub use pinger::{ContinuousPing, EchoSocket, Pings};
pub use plugin::{PluginCall, PluginOutput};
pub use pod::Pod;
pub use processor::Scheduled;
pub use programs::{Programs, locate};
pub use run::{command_line, poll, run, run_with, wait_until};
pub use signals::block_if_shutting_down;
pub use snapshot::Snapshot;
pub use strace::{Strace, SystemCall};
pub use teardown::{ExistingLab, existing_labs, is_dying, start_time, take_down};
pub use underlay::{OUTSIDE, Underlay};
