//! Where things are on a node, unless flags or configs say otherwise.

/// Folder of all state of plugin and agent. Void after a reboot.
pub const DEFAULT_RUN_DIR: &str = "/run/tweed";
/// Folder in which container runtimes look for network configs.
pub const DEFAULT_CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// Folder in which container runtimes look for plugins.
pub const DEFAULT_CNI_BIN_DIR: &str = "/opt/cni/bin";
/// The sysctls of the reader's network namespace.
pub const DEFAULT_SYSCTL_DIR: &str = "/proc/sys/net";
/// Name of the network config that the agent writes into the config folder.
pub const CONFLIST: &str = "10-tweed.conflist";
/// Name of the file in the run folder whose lock the running agent holds.
pub const AGENT_LOCK: &str = "agent.lock";
