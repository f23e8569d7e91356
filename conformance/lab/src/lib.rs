//! The lab: nodes and pods as network namespaces on one machine.
//!
//! A [`Lab`] owns what it makes: namespaces, processes, one folder under
//! `/run/tweed-lab`. All of it is gone when the last handle is dropped, when a
//! test panics, and when the program gets SIGINT, SIGTERM or SIGHUP. The folder
//! is a journal, so what a killed program left is found and taken away by the
//! next one. Nothing is ever made in the machine's own network namespace.
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
mod cgroups;
mod cluster;
mod cnitool;
pub mod demo;
mod echo;
mod error;
mod lab;
mod manifest;
mod netns;
mod node;
mod ping;
mod pinger;
mod plugin;
mod pod;
mod programs;
mod run;
mod signals;
mod snapshot;
mod teardown;
mod underlay;
mod watch;

pub use agent::{Agent, AgentOptions};
pub use background::Background;
pub use cgroups::Cgroups;
pub use cluster::{Cluster, ClusterNode, ClusterPod};
pub use cnitool::{AddResult, AddedInterface, AddedIp, CniTool};
pub use echo::{EchoServer, Transport, source_seen};
pub use error::LabError;
pub use lab::Lab;
pub use manifest::{NodeManifest, NodesFile};
pub use netns::Netns;
pub use node::{Node, NodeSpec};
pub use ping::{PingOptions, PingReport, ping};
pub use pinger::{ContinuousPing, EchoSocket, Pings};
pub use plugin::{PluginCall, PluginOutput};
pub use pod::Pod;
pub use programs::Programs;
pub use run::{line, run, run_with, wait_until};
pub use signals::end_here_if_leaving;
pub use snapshot::Snapshot;
pub use teardown::{Leftover, is_dying, leftovers, start_time, take_down};
pub use underlay::{OUTSIDE, Underlay};
pub use watch::{Capture, capture, monitor};
