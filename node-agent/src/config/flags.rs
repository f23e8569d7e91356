//! The flags, as typed. Their help texts and defaults stand here and nowhere
//! else: `docs/agent.md` is checked against them by a test.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser, value_parser};
use ipnetwork::IpNetwork;
use tweed_core::defaults::{METRICS_ADDR, NFT, VNI, VNI_RANGE, VXLAN_PORT};
use tweed_core::paths::{
    DEFAULT_CNI_BIN_DIR, DEFAULT_CNI_CONF_DIR, DEFAULT_RUN_DIR, DEFAULT_SYSCTL_DIR,
};
use tweed_watch::client::Uri;

use super::choices::choice;
use super::{Backend, Family, LogFormat, Masquerade, MasqueradeNodes, Mtu, parse};

const EXAMPLES: &str = "\
Every flag can be given in the environment too; the command line wins.

Examples:
  On a Kubernetes node, as a pod of the cluster:
    tweed-agent --node-name worker-1

  Without Kubernetes, over a file of Node manifests:
    tweed-agent --node-name alpha --nodes /etc/tweed/nodes.yaml

  Plain routes between nodes on one link, VXLAN to the others:
    tweed-agent --backend cross-subnet --cluster-cidr 10.244.0.0/16

  What is wrong on this node:
    curl http://127.0.0.1:9116/readyz

Exit codes: 0 stopped by a signal, or --once has converged; 1 an error, printed
on stderr; 2 a flag that is not understood. Whatever the agent made in the
kernel stays when it stops: traffic goes on.";

/// Keeps this node's part of the overlay as it should be: watches Nodes,
/// programs VXLAN, routes, neighbours and nftables, writes the CNI config.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "tweed-agent", version, after_help = EXAMPLES)]
pub struct Flags {
    /// Which Node this is; without it, the host name in lower case
    #[arg(
        long,
        env = "TWEED_NODE_NAME",
        value_name = "NAME",
        value_parser = parse::node_name,
        help_heading = "Nodes"
    )]
    pub node_name: Option<String>,

    /// How to reach the API server; without it and without --nodes, as a pod
    /// of the cluster does
    #[arg(
        long,
        env = "TWEED_KUBECONFIG",
        value_name = "FILE",
        conflicts_with = "nodes",
        help_heading = "Nodes"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Where the API server is, for a pod of the cluster: https://host:port;
    /// without it, KUBERNETES_SERVICE_HOST, which may need kube-proxy
    #[arg(
        long,
        env = "TWEED_API_SERVER",
        value_name = "URL",
        value_parser = parse::api_server,
        conflicts_with_all = ["nodes", "kubeconfig"],
        help_heading = "Nodes"
    )]
    pub api_server: Option<Uri>,

    /// A file of Node manifests (YAML or JSON, a List or several documents)
    /// in place of an API server; watched, so replace it by rename
    #[arg(long, env = "TWEED_NODES", value_name = "FILE", help_heading = "Nodes")]
    pub nodes: Option<PathBuf>,

    /// How packets reach other nodes
    #[arg(
        long,
        env = "TWEED_BACKEND",
        value_parser = choice::<Backend>(),
        default_value = "vxlan",
        help_heading = "Overlay"
    )]
    pub backend: Backend,

    /// What is never masqueraded, and what a Node's pod CIDRs must lie in; at
    /// most one per family, separated by a comma; without it, the union of the
    /// Nodes' pod CIDRs
    #[arg(
        long,
        env = "TWEED_CLUSTER_CIDR",
        value_name = "CIDR",
        value_parser = parse::cidr,
        value_delimiter = ',',
        help_heading = "Overlay"
    )]
    pub cluster_cidr: Vec<IpNetwork>,

    /// VXLAN network identifier, 1 to 16777215, the same on all nodes
    #[arg(
        long,
        env = "TWEED_VNI",
        value_parser = value_parser!(u32).range(VNI_RANGE),
        default_value_t = VNI,
        help_heading = "Overlay"
    )]
    pub vni: u32,

    /// UDP port of VXLAN, the same on all nodes
    #[arg(
        long,
        env = "TWEED_VXLAN_PORT",
        value_name = "PORT",
        value_parser = value_parser!(u16).range(1..),
        default_value_t = VXLAN_PORT,
        help_heading = "Overlay"
    )]
    pub vxlan_port: u16,

    /// Picks one of each Node's addresses, for all nodes alike; without it,
    /// the InternalIP
    #[arg(
        long,
        env = "TWEED_UNDERLAY",
        value_name = "CIDR",
        value_parser = parse::cidr,
        help_heading = "Overlay"
    )]
    pub underlay: Option<IpNetwork>,

    /// Family of the nodes' addresses, the same in the whole cluster; without
    /// it, that of --underlay or of this Node's first InternalIP
    #[arg(
        long,
        env = "TWEED_UNDERLAY_FAMILY",
        value_name = "FAMILY",
        value_parser = choice::<Family>(),
        help_heading = "Overlay"
    )]
    pub underlay_family: Option<Family>,

    /// MTU of pods: auto, or a number of bytes; auto is the underlay's less 50
    /// (VXLAN over IPv4), 70 (VXLAN over IPv6) or 0 (direct)
    #[arg(
        long,
        env = "TWEED_MTU",
        value_parser = parse::mtu,
        default_value = "auto",
        help_heading = "Overlay"
    )]
    pub mtu: Mtu,

    /// Source ports of packets from pods to the world, which leave with the
    /// node's address; off leaves them as they are
    #[arg(
        long,
        env = "TWEED_MASQUERADE",
        value_name = "PORTS",
        value_parser = choice::<Masquerade>(),
        default_value = "random-fully",
        help_heading = "Masquerading"
    )]
    pub masquerade: Masquerade,

    /// Whether packets from pods to other nodes leave with the node's address
    /// too
    #[arg(
        long,
        env = "TWEED_MASQUERADE_NODES",
        value_name = "WHEN",
        value_parser = choice::<MasqueradeNodes>(),
        default_value = "auto",
        help_heading = "Masquerading"
    )]
    pub masquerade_nodes: MasqueradeNodes,

    /// Where 10-tweed.conflist is written
    #[arg(
        long,
        env = "TWEED_CNI_CONF_DIR",
        value_name = "DIR",
        value_parser = parse::folder,
        default_value = DEFAULT_CNI_CONF_DIR,
        help_heading = "Files"
    )]
    pub cni_conf_dir: PathBuf,

    /// Where the runtime's CNI plugins are: chained are those that are there
    #[arg(
        long,
        env = "TWEED_CNI_BIN_DIR",
        value_name = "DIR",
        value_parser = parse::folder,
        default_value = DEFAULT_CNI_BIN_DIR,
        help_heading = "Files"
    )]
    pub cni_bin_dir: PathBuf,

    /// Where agent and plugin keep their state
    #[arg(
        long,
        env = "TWEED_RUN_DIR",
        value_name = "DIR",
        value_parser = parse::folder,
        default_value = DEFAULT_RUN_DIR,
        help_heading = "Files"
    )]
    pub run_dir: PathBuf,

    /// Where the sysctls below net/ are written; for a container whose
    /// /proc/sys is read-only, a mount of the host's
    #[arg(
        long,
        env = "TWEED_SYSCTL_DIR",
        value_name = "DIR",
        value_parser = parse::folder,
        default_value = DEFAULT_SYSCTL_DIR,
        help_heading = "Files"
    )]
    pub sysctl_dir: PathBuf,

    /// The nft program, 1.0.6 or later: a path, or a name found in PATH
    #[arg(
        long,
        env = "TWEED_NFT",
        value_name = "PROGRAM",
        default_value = NFT,
        help_heading = "Files"
    )]
    pub nft: PathBuf,

    /// Where /metrics, /healthz and /readyz are served; an IPv6 address may
    /// stand with or without brackets
    #[arg(
        long,
        env = "TWEED_METRICS_ADDR",
        value_name = "ADDR:PORT",
        value_parser = parse::listen_addr,
        default_value_t = METRICS_ADDR,
        help_heading = "Running"
    )]
    pub metrics_addr: SocketAddr,

    /// Converge once and exit
    #[arg(
        long,
        env = "TWEED_ONCE",
        action = ArgAction::SetTrue,
        value_parser = BoolishValueParser::new(),
        help_heading = "Running"
    )]
    pub once: bool,

    /// How log lines look; they go to stderr
    #[arg(
        long,
        env = "TWEED_LOG_FORMAT",
        value_name = "FORMAT",
        value_parser = choice::<LogFormat>(),
        default_value = "text",
        help_heading = "Running"
    )]
    pub log_format: LogFormat,

    /// What is logged: off, error, warn, info, debug or trace, or directives
    /// such as info,tweed_watch=debug
    #[arg(
        long,
        env = "TWEED_LOG_LEVEL",
        value_name = "LEVEL",
        value_parser = parse::log_level,
        default_value = "info",
        help_heading = "Running"
    )]
    pub log_level: String,
}
