//! Default paths on a node, and names of files that several programs use.

/// Folder of all state of plugin and agent. Its content is not valid after a reboot.
pub const DEFAULT_RUN_DIR: &str = "/run/tweed";
/// Folder of the container runtime's network configs.
pub const DEFAULT_CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// Folder of the container runtime's CNI plugins.
pub const DEFAULT_CNI_BIN_DIR: &str = "/opt/cni/bin";
/// Folder of the sysctls of the reader's network namespace.
pub const DEFAULT_SYSCTL_DIR: &str = "/proc/sys/net";
/// The kernel's file with the ID of the current boot.
pub const DEFAULT_BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";
/// Folder of the programs of the fast path: bpffs is mounted above it. Names in bpffs have
/// no dot.
pub const DEFAULT_BPF_DIR: &str = "/sys/fs/bpf/tweed";
/// Name of the network config that the agent writes into the config folder.
pub const CONFLIST: &str = "10-tweed.conflist";
/// Name of the file in the run folder that keeps the Nodes as the agent last knew
/// them.
pub const NODES_KEPT: &str = "nodes.jsonl";
/// Name of the file in the run folder whose lock the running agent holds.
pub const AGENT_LOCK: &str = "agent.lock";
