//! The flags, as typed. Their help texts are defined here and nowhere else: a
//! test compares `docs/flags.md` with them.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, CommandFactory as _, FromArgMatches as _, Parser};
use clap::{builder::BoolishValueParser, value_parser};
use ipnetwork::IpNetwork;
use tweed_core::paths::{
    DEFAULT_BOOT_ID_FILE, DEFAULT_BPF_DIR, DEFAULT_CNI_BIN_DIR, DEFAULT_CNI_CONF_DIR,
    DEFAULT_RUN_DIR, DEFAULT_SYSCTL_DIR,
};
use tweed_watch::client::Uri;

use super::defaults::{
    FAST_PATH_FLOWS, FAST_PATH_FLOWS_RANGE, HEALTH_ADDR, METRICS_ADDR, NFT, SERVICES_HEALTH_ADDR,
    SERVICES_METRICS_ADDR, VNI, VNI_RANGE, VXLAN_PORT,
};
use super::parse::ServedAt;
use super::{
    Backend, Family, FastPath, LogFormat, Masquerade, MasqueradeIpv6, MasqueradeNodes, MetricsAuth,
    Mtu,
};
use super::{choices::choice, choices::switch, parse};
use crate::VERSION;

const EXAMPLES: &str = "\
Every flag can also be given as an environment variable; the command line takes
precedence.

Examples:
  On a Kubernetes node, as a pod of the cluster:
    tweed-agent --node-name worker-1

  Without Kubernetes, with a file of Node manifests:
    tweed-agent --node-name alpha --nodes /etc/tweed/nodes.yaml

  Plain routes between nodes on one link, VXLAN to the others:
    tweed-agent --backend cross-subnet --cluster-cidr 10.244.0.0/16

  What is wrong on this node:
    tweedctl status

  Why policies allow or deny a connection:
    tweedctl why shop/web-0 shop/db-0:5432

Exit codes: 0 stopped by a signal, or --once has converged; 1 an error, printed
on stderr; 2 an invalid flag. When the agent stops, everything that it made in
the kernel stays, and traffic continues.";

const ABOUT: &str = "\
Node agent of the pod network tweed: watches Nodes, programs VXLAN, routes,
neighbours and nftables of this node, and writes its CNI config";

/// The flags of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "tweed-agent", version = VERSION, about = ABOUT, after_help = EXAMPLES)]
pub struct Flags {
    /// Name of this machine's Node; if not given, the host name in lower case
    #[arg(long, env = "TWEED_NODE_NAME", value_name = "NAME", value_parser = parse::node_name,
          help_heading = "Nodes")]
    pub node_name: Option<String>,

    /// kubeconfig file for the API server; if neither it nor --nodes is given,
    /// the agent uses the service account of its pod
    #[arg(long, env = "TWEED_KUBECONFIG", value_name = "FILE")]
    #[arg(conflicts_with = "nodes", help_heading = "Nodes")]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the API server for an agent that runs as a pod, https://host:port;
    /// if not given, KUBERNETES_SERVICE_HOST, which may need kube-proxy
    #[arg(long, env = "TWEED_API_SERVER", value_name = "URL", value_parser = parse::api_server,
          conflicts_with_all = ["nodes", "kubeconfig"], help_heading = "Nodes")]
    pub api_server: Option<Uri>,

    /// File of Node manifests (YAML or JSON, a List or several documents) to use
    /// instead of an API server; it is watched, so replace it by rename
    #[arg(long, env = "TWEED_NODES", value_name = "FILE", help_heading = "Nodes")]
    pub nodes: Option<PathBuf>,

    /// How packets reach other nodes
    #[arg(long, env = "TWEED_BACKEND", value_parser = choice::<Backend>(),
          default_value = "vxlan", help_heading = "Overlay")]
    pub backend: Backend,

    /// Ranges that are never masqueraded and that contain the pod CIDRs of all
    /// Nodes; at most one per family, separated by a comma; if not given, the
    /// union of the Nodes' pod CIDRs
    #[arg(long, env = "TWEED_CLUSTER_CIDR", value_name = "CIDR", value_parser = parse::cidr,
          value_delimiter = ',', help_heading = "Overlay")]
    pub cluster_cidr: Vec<IpNetwork>,

    /// VXLAN network identifier, 1 to 16777215, the same on all nodes
    #[arg(long, env = "TWEED_VNI", value_parser = value_parser!(u32).range(VNI_RANGE),
          default_value_t = VNI, help_heading = "Overlay")]
    pub vni: u32,

    /// UDP port of VXLAN, the same on all nodes
    #[arg(long, env = "TWEED_VXLAN_PORT", value_name = "PORT",
          value_parser = value_parser!(u16).range(1..), default_value_t = VXLAN_PORT,
          help_heading = "Overlay")]
    pub vxlan_port: u16,

    /// Range that selects one of each Node's addresses, the same on all nodes;
    /// if not given, the InternalIP is used
    #[arg(long, env = "TWEED_UNDERLAY", value_name = "CIDR", value_parser = parse::cidr,
          help_heading = "Overlay")]
    pub underlay: Option<IpNetwork>,

    /// Family of the selected addresses, the same on all nodes; if not given,
    /// that of --underlay or of this Node's first InternalIP
    #[arg(long, env = "TWEED_UNDERLAY_FAMILY", value_name = "FAMILY",
          value_parser = choice::<Family>(), help_heading = "Overlay")]
    pub underlay_family: Option<Family>,

    /// MTU of pods in bytes, or auto: the MTU of the underlay minus 50 (VXLAN
    /// over IPv4), 70 (VXLAN over IPv6) or 0 (direct)
    #[arg(long, env = "TWEED_MTU", value_parser = parse::mtu, default_value = "auto",
          help_heading = "Overlay")]
    pub mtu: Mtu,

    /// Whether the other nodes are asked, over the way that pods' packets take,
    /// whether they are reached: ten packets a second at most
    #[arg(long, env = "TWEED_PROBE_PEERS", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are, and what does not answer is a warning",
                                "They are not; probes of others are answered by the kernel alone"),
          default_value = "on", help_heading = "Overlay")]
    pub probe_peers: bool,

    /// How source ports are chosen for packets from pods to addresses outside
    /// the cluster, which leave with the node's address
    #[arg(long, env = "TWEED_MASQUERADE", value_name = "MODE",
          value_parser = choice::<Masquerade>(), default_value = "random-fully",
          help_heading = "Masquerading")]
    pub masquerade: Masquerade,

    /// Whether that holds for the IPv6 addresses of pods too
    #[arg(long, env = "TWEED_MASQUERADE_IPV6", value_name = "auto|on|off",
          value_parser = choice::<MasqueradeIpv6>(), default_value = "auto",
          help_heading = "Masquerading")]
    pub masquerade_ipv6: MasqueradeIpv6,

    /// Whether packets from pods to other nodes leave with the node's address
    /// too
    #[arg(long, env = "TWEED_MASQUERADE_NODES", value_name = "auto|on|off",
          value_parser = choice::<MasqueradeNodes>(), default_value = "auto",
          help_heading = "Masquerading")]
    pub masquerade_nodes: MasqueradeNodes,

    /// Whether NetworkPolicies and ClusterNetworkPolicies are enforced
    #[arg(long, env = "TWEED_POLICY", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are, as soon as there is one",
                                "They are not watched; no packet is dropped for one"),
          default_value = "on", help_heading = "Policy")]
    pub policy: bool,

    /// Whether packets that tweed's rules drop are logged, by policies and by all
    /// others, with a limited rate, by nflog
    #[arg(long, env = "TWEED_POLICY_LOG", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are logged and counted",
                                "They are only counted"),
          default_value = "off", help_heading = "Policy")]
    pub policy_log: bool,

    /// How long a new pod's start waits at most until policies are in force for
    /// it, 0 to 60s, such as 2s or 500ms; a pod that starts before is isolated
    /// until then
    #[arg(long, env = "TWEED_POLICY_WAIT", value_name = "TIME", value_parser = parse::wait,
          default_value = "2s", help_heading = "Policy")]
    pub policy_wait: Duration,

    /// Whether Services are served: then this cluster needs no kube-proxy
    #[arg(long, env = "TWEED_SERVICES", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are, by the table inet tweed-services",
                                "They are not watched; another program serves them"),
          default_value = "off", help_heading = "Services")]
    pub services: bool,

    /// At which of the node's addresses node ports are: primary (the first
    /// address of each family in the Node object), all, or those in a CIDR;
    /// several are separated by a comma
    #[arg(long, env = "TWEED_NODEPORT_ADDRESSES", value_name = "CIDR",
          value_parser = parse::node_ports_at, value_delimiter = ',',
          default_value = "primary", help_heading = "Services")]
    pub nodeport_addresses: Vec<ServedAt>,

    /// Whether the externalIPs of Services are served: whoever may write a
    /// Service can then take the traffic to any address (CVE-2020-8554)
    #[arg(long, env = "TWEED_EXTERNAL_IPS", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are", "They are ignored"),
          default_value = "off", help_heading = "Services")]
    pub external_ips: bool,

    /// Which load balancers' addresses (status.loadBalancer of Services) are served:
    /// all, or those in a CIDR; several are separated by a comma
    #[arg(long, env = "TWEED_LOAD_BALANCER_CIDRS", value_name = "CIDR",
          value_parser = parse::load_balancers_in, value_delimiter = ',',
          default_value = "all", help_heading = "Services")]
    pub load_balancer_cidrs: Vec<ServedAt>,

    /// Whether, with --services on, the limits and timeouts of conntrack are set:
    /// the sysctls net.netfilter.nf_conntrack_*
    #[arg(long, env = "TWEED_CONNTRACK_LIMITS", value_name = "on|off", action = ArgAction::Set,
          value_parser = switch("They are, to kube-proxy's values",
                                "They stay as they are"),
          default_value = "on", help_heading = "Services")]
    pub conntrack_limits: bool,

    /// Address on which load balancers ask for this node's /healthz; [::] is every
    /// address of both families
    #[arg(long, env = "TWEED_SERVICES_HEALTH_ADDR", value_name = "ADDR:PORT",
          value_parser = parse::listen_addr, default_value_t = SERVICES_HEALTH_ADDR,
          help_heading = "Services")]
    pub services_health_addr: SocketAddr,

    /// Address on which metrics are served under kube-proxy's names, for who
    /// collects them there; --metrics-addr has them too
    #[arg(long, env = "TWEED_SERVICES_METRICS_ADDR", value_name = "ADDR:PORT",
          value_parser = parse::listen_addr, default_value_t = SERVICES_METRICS_ADDR,
          help_heading = "Services")]
    pub services_metrics_addr: SocketAddr,

    /// Whether established flows between pods skip the host's stack, by eBPF programs:
    /// Linux 6.6 or later, CAP_BPF, CAP_PERFMON and a mounted bpffs
    #[arg(long, env = "TWEED_FAST_PATH", value_name = "MODE", value_parser = choice::<FastPath>(),
          default_value = "off", help_heading = "Fast path")]
    pub fast_path: FastPath,

    /// How many directions of flows the fast path remembers for each family, 1024 to
    /// 16777216; beyond that, what was not used for longest takes the kernel's path
    #[arg(long, env = "TWEED_FAST_PATH_FLOWS", value_name = "NUMBER",
          value_parser = value_parser!(u32).range(FAST_PATH_FLOWS_RANGE),
          default_value_t = FAST_PATH_FLOWS, help_heading = "Fast path")]
    pub fast_path_flows: u32,

    /// Folder, in a mounted bpffs, in which the fast path's programs are pinned
    #[arg(long, env = "TWEED_BPF_DIR", value_name = "DIR", value_parser = parse::absolute,
          default_value = DEFAULT_BPF_DIR, help_heading = "Fast path")]
    pub bpf_dir: PathBuf,

    /// Folder of the runtime's network configs, in which the agent writes
    /// 10-tweed.conflist
    #[arg(long, env = "TWEED_CNI_CONF_DIR", value_name = "DIR", value_parser = parse::absolute,
          default_value = DEFAULT_CNI_CONF_DIR, help_heading = "Files")]
    pub cni_conf_dir: PathBuf,

    /// Folder of the runtime's CNI plugins; portmap and bandwidth are chained if
    /// they are there
    #[arg(long, env = "TWEED_CNI_BIN_DIR", value_name = "DIR", value_parser = parse::absolute,
          default_value = DEFAULT_CNI_BIN_DIR, help_heading = "Files")]
    pub cni_bin_dir: PathBuf,

    /// Folder of the state of agent and plugin
    #[arg(long, env = "TWEED_RUN_DIR", value_name = "DIR", value_parser = parse::absolute,
          default_value = DEFAULT_RUN_DIR, help_heading = "Files")]
    pub run_dir: PathBuf,

    /// Folder of the sysctls below net/; for a container whose /proc/sys is
    /// read-only, a mount of the host's
    #[arg(long, env = "TWEED_SYSCTL_DIR", value_name = "DIR", value_parser = parse::absolute,
          default_value = DEFAULT_SYSCTL_DIR, help_heading = "Files")]
    pub sysctl_dir: PathBuf,

    /// File with the node's boot ID; for a container on a node that is itself a
    /// container (LXC, Incus, nspawn), where it sees another one, a mount of the
    /// node's
    #[arg(long, env = "TWEED_BOOT_ID_FILE", value_name = "FILE", value_parser = parse::absolute,
          default_value = DEFAULT_BOOT_ID_FILE, help_heading = "Files")]
    pub boot_id_file: PathBuf,

    /// The nft program, 1.0.6 or later: a path, or a name found in PATH
    #[arg(long, env = "TWEED_NFT", value_name = "PROGRAM", default_value = NFT,
          help_heading = "Files")]
    pub nft: PathBuf,

    /// Address on which /metrics, /healthz and /readyz are served; an IPv6
    /// address may be written with or without brackets
    #[arg(long, env = "TWEED_METRICS_ADDR", value_name = "ADDR:PORT",
          value_parser = parse::listen_addr, default_value_t = METRICS_ADDR,
          help_heading = "Running")]
    pub metrics_addr: SocketAddr,

    /// Who may read what --metrics-addr serves
    #[arg(long, env = "TWEED_METRICS_AUTH", value_name = "MODE",
          value_parser = choice::<MetricsAuth>(), default_value = "none",
          help_heading = "Running")]
    pub metrics_auth: MetricsAuth,

    /// Address on which /healthz and /readyz are served for probes, apart from
    /// the connections to --metrics-addr: a loopback address keeps others away
    #[arg(long, env = "TWEED_HEALTH_ADDR", value_name = "ADDR:PORT",
          value_parser = parse::listen_addr, default_value_t = HEALTH_ADDR,
          help_heading = "Running")]
    pub health_addr: SocketAddr,

    /// Converge once and exit
    #[arg(long, env = "TWEED_ONCE", action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new(), help_heading = "Running")]
    pub once: bool,

    /// Format of log lines, which go to stderr
    #[arg(long, env = "TWEED_LOG_FORMAT", value_name = "FORMAT",
          value_parser = choice::<LogFormat>(), default_value = "text",
          help_heading = "Running")]
    pub log_format: LogFormat,

    /// What is logged: off, error, warn, info, debug or trace, or directives
    /// such as info,tweed_watch=debug
    #[arg(long, env = "TWEED_LOG_LEVEL", value_name = "LEVEL", value_parser = parse::log_level,
          default_value = "info", help_heading = "Running")]
    pub log_level: String,
}

impl Flags {
    /// The flags that values stand for, as the agent reads them from its environment; that of
    /// the calling process has no part in it.
    ///
    /// # Errors
    /// What the agent refuses.
    pub fn of_values(value: impl Fn(&Arg) -> Option<OsString>) -> Result<Self, clap::Error> {
        let command = Self::command().no_binary_name(true);
        let typed: Vec<OsString> = command
            .get_arguments()
            .filter_map(|flag| {
                let mut typed = OsString::from(format!("--{}=", flag.get_long()?));
                typed.push(value(flag)?);
                Some(typed)
            })
            .collect();
        let without_env = command.mut_args(|flag| {
            let flag = flag.env(None::<&'static str>);
            // In the environment a switch has a value too.
            if matches!(flag.get_action(), ArgAction::SetTrue) {
                return flag.action(ArgAction::Set).default_value("false");
            }
            flag
        });
        Self::from_arg_matches(&without_env.try_get_matches_from(typed)?)
    }
}
