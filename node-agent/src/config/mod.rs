//! The agent's configuration.
//!
//! [`Flags`] is what was typed, on the command line or in the environment.
//! [`Flags::resolve`] turns it into [`Config`], in which everything that has a
//! default has a value; the rest of the agent sees nothing else.

mod choices;
pub mod defaults;
mod flags;
mod parse;
mod resolve;
pub mod variables;

use std::collections::BTreeSet;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

use sha2::{Digest as _, Sha256};
use tweed_core::{family::Family, text::hex};
use tweed_planner::config::{Backend, Masquerade, MasqueradeIpv6, MasqueradeNodes, Mtu};
use tweed_watch::client::{Access, Server};

pub use flags::Flags;
pub(crate) use parse::log_filter;
pub use resolve::{ConfigError, host_name};

/// What the agent runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where Nodes come from.
    pub source: SourceConfig,
    /// What the overlay is planned from.
    pub overlay: tweed_planner::config::Config,
    /// Whether other nodes are asked whether they are reached.
    pub probe_peers: bool,
    /// Whether policies are enforced.
    pub policy: bool,
    /// Whether what policies drop is logged.
    pub policy_log: bool,
    /// How long an ADD waits at most until its pod is enforced.
    pub policy_wait: Duration,
    /// What Services are planned from; none with `--services off`.
    pub services: Option<tweed_planner::services::Options>,
    /// Whether the limits and timeouts of conntrack are set: only with Services.
    pub conntrack_limits: bool,
    /// Whether established flows between pods skip the host's stack.
    pub fast_path: FastPath,
    /// How many directions of flows the fast path remembers, for each family.
    pub fast_path_flows: u32,
    /// Where the fast path's programs are pinned.
    pub bpf_dir: PathBuf,
    /// Where `/healthz` and `/livez` are served for load balancers.
    pub services_health_addr: SocketAddr,
    /// Where metrics are served under kube-proxy's names.
    pub services_metrics_addr: SocketAddr,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub metrics_addr: SocketAddr,
    /// Who may read there.
    pub metrics_auth: MetricsAuth,
    /// Where `/healthz` and `/readyz` are served for the probes.
    pub health_addr: SocketAddr,
    /// Folder of the conflist.
    pub cni_conf_dir: PathBuf,
    /// Folder of the CNI plugins.
    pub cni_bin_dir: PathBuf,
    /// Folder of the state of agent and plugin.
    pub run_dir: PathBuf,
    /// The host's `/proc/sys/net`, writable.
    pub sysctl_dir: PathBuf,
    /// The file with the boot ID of the node, as the plugin reads it.
    pub boot_id_file: PathBuf,
    /// The `nft` program: a path, or a name to be found in `PATH`.
    pub nft: PathBuf,
    /// Converge once and exit.
    pub once: bool,
    /// How long that may take.
    pub once_limit: Duration,
    /// Format of log lines.
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

/// What tells a source from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceIdentity {
    /// The URL of the API server, or the path of the file.
    pub name: String,
    /// The SHA-256 of each certificate of which one has to have signed the API server's, as
    /// hex digits. While a cluster changes its authority it has the old one and the new one.
    pub authorities: BTreeSet<String>,
}

impl SourceConfig {
    /// What tells this source from another.
    ///
    /// # Errors
    /// Why it is not known which API server it is.
    pub async fn identity(&self) -> Result<SourceIdentity, String> {
        let server = match self {
            Self::File(path) => Server {
                url: path.display().to_string(),
                authorities: Vec::new(),
            },
            Self::Kubernetes(access) => access.server().await.map_err(|e| e.to_string())?,
        };
        let digest = |certificate: &Vec<u8>| hex(&Sha256::digest(certificate));
        Ok(SourceIdentity {
            name: server.url,
            authorities: server.authorities.iter().map(digest).collect(),
        })
    }
}

/// Whether established flows between pods skip the host's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPath {
    /// They do not.
    Off,
    /// Where the node can.
    Auto,
    /// Always: that the node cannot is a problem.
    On,
}

/// Who may read metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Everybody who reaches the address.
    None,
    /// Who the API server says may, over TLS.
    TokenReview,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object a line.
    Json,
}

/// The configuration of a command line.
#[cfg(test)]
pub(crate) fn of_line(line: &str) -> Config {
    use clap::Parser as _;

    let args = std::iter::once("tweed-agent").chain(line.split_whitespace());
    let flags = Flags::try_parse_from(args).unwrap();
    flags.resolve(host_name).unwrap()
}
