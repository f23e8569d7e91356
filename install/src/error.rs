//! Errors, each with the operation, the object, the cause and a cure.

use std::io;
use std::path::{Path, PathBuf};

use tweed_core::atomic_file::ReplaceError as FileError;
use tweed_core::instance_lock::InstanceLockError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// An operation on a file or folder failed.
    #[error("{}{}", .0, cure(&.0.source))]
    File(#[from] FileError),
    /// A file has an unexpected format.
    #[error("{} has an unexpected format: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What only its text says.
    #[error("{0}")]
    Other(String),
    /// The kernel refused a change, over rtnetlink.
    #[error(transparent)]
    Kernel(#[from] tweed_netlink::Error),
    /// The kernel refused a change, of nf_tables.
    #[error(transparent)]
    NfTables(#[from] tweed_nft::Error),
    /// The address store cannot be read.
    #[error(transparent)]
    Store(#[from] tweed_ipam::store::StoreError),
    /// The agent's lock cannot be had: an agent runs, and would undo what uninstall does, or
    /// the lock cannot be used.
    #[error("{}{}", .0, stop_it(.0))]
    Lock(#[from] InstanceLockError),
    /// Pods are left, and would lose their network.
    #[error(
        "pods of this node would lose their network ({}): {}. Drain the node first \
         (kubectl drain --ignore-daemonsets), which leaves pods of DaemonSets: keep those off the \
         node; or stop the containers, so that their runtime gives the addresses back. Or remove \
         their network with --pods (TWEED_PODS=true): they then have to be deleted by hand",
        pods.len(), pods.join(", ")
    )]
    PodsLeft {
        /// Their names.
        pods: Vec<String>,
    },
    /// Nobody would serve Services.
    #[error(
        "the agent of this node does not say that it serves Services: kube-proxy's rules may be \
         the only ones that do. Set --services to on and wait until agent.json says so, or remove \
         them all the same with --force"
    )]
    ServicesNotServed,
    /// Nobody would serve Services, whatever the agent has said.
    #[error(
        "agent.json says that the agent serves Services, but the kernel has no rules of Services \
         in the table inet tweed-services: kube-proxy's rules may be the only ones. tweedctl status \
         says why the agent does not write them; or remove kube-proxy's all the same with --force"
    )]
    ServicesNotInKernel,
    /// A kube-proxy would make its rules again.
    #[error(
        "a kube-proxy runs on this node, in mode {mode}, and would make its rules again: take it \
         off this node first"
    )]
    KubeProxyRuns {
        /// Its mode.
        mode: String,
    },
    /// The tables of the old iptables cannot be read.
    #[error(transparent)]
    OldIptables(#[from] tweed_diagnosis::iptables_legacy::Error),
    /// What kube-proxy has on this node cannot be found out.
    #[error(transparent)]
    KubeProxyUnknown(#[from] tweed_diagnosis::service_proxy::FindError),
    /// The output cannot be written.
    #[error("cannot write what was done: {0}")]
    Output(#[from] io::Error),
    /// Something failed, and was reported.
    #[error("{count} operations failed, see above; it is safe to run it again")]
    Failed {
        /// How many.
        count: usize,
    },
}

impl InstallError {
    /// The same with another cure, if it is about a read-only file system.
    #[must_use]
    pub fn or_elsewhere(self, cure: &'static str) -> Self {
        match self {
            Self::File(error) if error.source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Self::Other(format!("{error}; {cure}"))
            }
            other => other,
        }
    }

    /// For `map_err` on an operation on a file.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let on = FileError::on(operation, path);
        |source| on(source).into()
    }

    /// The outcome of an operation on a file or folder; `None` if it does not exist.
    pub(crate) fn if_exists<T>(
        operation: &'static str,
        path: &Path,
        outcome: Result<T, impl Into<io::Error>>,
    ) -> Result<Option<T>, Self> {
        match outcome.map_err(Into::into) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            outcome => outcome.map(Some).map_err(Self::file(operation, path)),
        }
    }
}

fn stop_it(error: &InstanceLockError) -> &'static str {
    match error {
        InstanceLockError::Taken { .. } => {
            ": stop it first, with `systemctl disable --now tweed-agent`, or by deleting the \
             DaemonSet tweed"
        }
        InstanceLockError::Unusable { .. } => "",
    }
}

/// A cure, if the system's message does not suggest one.
fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space on it",
        io::ErrorKind::PermissionDenied => {
            "; run it as root or, without capabilities, as the owner of the folder"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_read_only_one_are_told_with_the_cure() {
        for (kind, word) in [
            (io::ErrorKind::ReadOnlyFilesystem, "mount it writable"),
            (io::ErrorKind::StorageFull, "free some space"),
            (io::ErrorKind::PermissionDenied, "as root"),
        ] {
            let error = InstallError::file("write", Path::new("/x"))(kind.into()).to_string();
            assert!(error.starts_with("cannot write /x: "), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }
}
