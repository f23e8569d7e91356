//! The agent's configuration, resolved: after this nothing is optional that
//! has a default.
//!
//! [`Flags`] is what was typed, on the command line or in the environment;
//! [`Flags::resolve`] makes the [`Config`] of it, the only thing that the rest
//! of the agent sees.

mod flags;
mod parse;
mod resolve;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use ipnetwork::IpNetwork;

use crate::api::Access;

pub use flags::Flags;
pub use resolve::{ConfigError, HostNameError, host_name};

/// What the agent runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which Node this is.
    pub node_name: String,
    /// Where Nodes come from.
    pub source: SourceConfig,
    /// How packets reach other nodes.
    pub backend: Backend,
    /// `--cluster-cidr`: what is not masqueraded; empty means the union of the
    /// Nodes' CIDRs.
    pub cluster_cidrs: Vec<IpNetwork>,
    /// VXLAN network identifier, 1 to 16777215.
    pub vni: u32,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// Picks one of each Node's addresses; none means the InternalIP.
    pub underlay: Option<IpNetwork>,
    /// Family of the underlay; none means that of the own first InternalIP.
    pub underlay_family: Option<Family>,
    /// MTU of pods.
    pub mtu: Mtu,
    /// Source ports of masqueraded packets, or no masquerading.
    pub masquerade: Masquerade,
    /// Whether pod → other node is masqueraded.
    pub masquerade_nodes: MasqueradeNodes,
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

/// How packets reach other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// VXLAN to every node.
    Vxlan,
    /// Plain routes to every node.
    Direct,
    /// Plain routes to nodes on the same link, VXLAN to the others.
    CrossSubnet,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Family {
    /// IPv4.
    #[value(name = "ipv4")]
    V4,
    /// IPv6.
    #[value(name = "ipv6")]
    V6,
}

impl Family {
    /// The family of `ip`.
    #[must_use]
    pub fn of(ip: std::net::IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// MTU of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mtu {
    /// The underlay's less what the backend adds.
    Auto,
    /// This many bytes.
    Fixed(u32),
}

/// Source ports of masqueraded packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Masquerade {
    /// Chosen at random for each flow.
    RandomFully,
    /// Randomised by hash.
    Random,
    /// Nothing is masqueraded.
    Off,
}

/// Whether pod → other node is masqueraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MasqueradeNodes {
    /// On with the backends vxlan and cross-subnet, off with direct.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
