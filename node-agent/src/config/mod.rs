//! The agent's configuration, resolved: after this nothing is optional that
//! has a default.
//!
//! [`Flags`] is what was typed, on the command line or in the environment;
//! [`Flags::resolve`] makes the [`Config`] of it, the only thing that the rest
//! of the agent sees.

mod choices;
mod flags;
mod parse;
mod resolve;

use std::net::SocketAddr;
use std::path::PathBuf;

use tweed_core::family::Family;
use tweed_planner::config::{Backend, Masquerade, MasqueradeNodes, Mtu};
use tweed_watch::client::Access;

pub use flags::Flags;
pub use resolve::{ConfigError, HostNameError, host_name};

/// What the agent runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where Nodes come from.
    pub source: SourceConfig,
    /// What the plan of the overlay is made from.
    pub overlay: tweed_planner::config::Config,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub metrics_addr: SocketAddr,
    /// Where the conflist is written.
    pub cni_conf_dir: PathBuf,
    /// Where chained plugins are looked for.
    pub cni_bin_dir: PathBuf,
    /// Where the agent and the plugin keep their state.
    pub run_dir: PathBuf,
    /// The host's `/proc/sys/net`, where it can be written.
    pub sysctl_dir: PathBuf,
    /// The `nft` program: a path, or a name to be found in `PATH`.
    pub nft: PathBuf,
    /// Converge once and exit.
    pub once: bool,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged: a level, or directives as tracing-subscriber's
    /// `EnvFilter` reads them.
    pub log_level: String,
}

/// Where Nodes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceConfig {
    /// An API server.
    Kubernetes(Access),
    /// A file of Node manifests.
    File(PathBuf),
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
