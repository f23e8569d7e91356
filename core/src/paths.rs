//! Default paths on a node, and names of files that several programs use.

/// Folder of all state of plugin and agent. Its content is not valid after a reboot.
pub const DEFAULT_RUN_DIR: &str = "/run/tweed";
/// Folder of the container runtime's network configs.
pub const DEFAULT_CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// Folder of the container runtime's CNI plugins.
pub const DEFAULT_CNI_BIN_DIR: &str = "/opt/cni/bin";
/// Folder of the sysctls of the reader's network namespace.
pub const DEFAULT_SYSCTL_DIR: &str = "/proc/sys/net";
/// Name of the network config that the agent writes into the config folder.
pub const CONFLIST: &str = "10-tweed.conflist";
/// Name of the file in the run folder whose lock the running agent holds.
pub const AGENT_LOCK: &str = "agent.lock";
