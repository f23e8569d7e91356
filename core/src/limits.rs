//! How much is read at most of each kind of file that others can write, in bytes: far more
//! than such a file ever has, and little enough for the memory ([`crate::regular_file`]).

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A file of manifests (`--nodes`), and the Nodes that the agent saves: 5,000 Nodes as
/// `kubectl get nodes -o yaml` prints them, 10 KiB each, fit.
pub const NODES: u64 = 64 * MIB;
/// A CNI config; the runtime hands on at most a MiB of it.
pub const CNI_CONFIG: u64 = MIB;
/// A kubeconfig: one with certificates for hundreds of clusters fits.
pub const KUBECONFIG: u64 = 8 * MIB;
/// A token, a key, or certificates: those of all public authorities have a quarter of a MiB.
pub const CREDENTIALS: u64 = 2 * MIB;
/// A record of the address store, which has about 600 bytes.
pub const RECORD: u64 = 64 * KIB;
/// What agent and plugin tell each other in the run folder. `agent.json` names each
/// problem, which may be one for each Node.
pub const STATE: u64 = 16 * MIB;
/// A file that says which process holds it.
pub const LOCK: u64 = 4 * KIB;
/// A config of a program on this machine: an environment file, one of systemd, of a
/// firewall or of a network manager; a list of checksums.
pub const HOST_CONFIG: u64 = 4 * MIB;
