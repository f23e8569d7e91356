//! Errors of the store: the file or attachment, the cause and the cure.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use crate::record::State;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The kernel refused a system call.
    #[error("cannot {operation} {path}: {error}{cure}", path = .path.display(), cure = cure(.error))]
    Io {
        /// What was tried, as a verb: `read`, `write`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Another process held the lock for too long.
    #[error(
        "the lock {path} was not free within {waited:?}: another CNI process works on this \
         network or hangs; `fuser -v {path}` names it", path = .path.display()
    )]
    LockTimeout {
        /// The lock.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
    },
    /// The kernel's file holds no valid boot ID.
    #[error("{path} holds no boot ID: {content:?}", path = .path.display())]
    NoBootId {
        /// Where it was looked for.
        path: PathBuf,
        /// What was found.
        content: String,
    },
    /// The attachment was added before and not deleted.
    #[error(
        "{attachment} already exists with {held}: an ADD without a DEL before it", held = list(.addresses)
    )]
    Attached {
        /// The attachment.
        attachment: String,
        /// The addresses that it has.
        addresses: Vec<IpAddr>,
    },
    /// Another ADD of the same attachment is in progress.
    #[error("process {pid} is adding {attachment} now")]
    AddInProgress {
        /// The attachment.
        attachment: String,
        /// The process that adds.
        pid: u32,
    },
    /// A DEL of the attachment is in progress.
    #[error("another process is deleting {attachment} now")]
    DelInProgress {
        /// The attachment.
        attachment: String,
    },
    /// The record is no longer that of the ADD: a DEL or a GC has freed it
    /// meanwhile.
    #[error("{attachment} was deleted while its ADD was in progress (found: {found})", found = found_text(.found.as_ref()))]
    RecordLost {
        /// The attachment.
        attachment: String,
        /// The state of the present record; absent when there is none.
        found: Option<State>,
    },
    /// No address is left in a range set.
    #[error(
        "range set {index} ({set}) of network {network} is exhausted: {used} of {capacity} \
         addresses are taken{left}; delete pods, or give the node a larger range",
        left = host_local_text(.host_local)
    )]
    Exhausted {
        /// The network.
        network: String,
        /// Which set of the config, from 0.
        index: usize,
        /// Its ranges.
        set: String,
        /// How many are taken.
        used: u128,
        /// How many there are.
        capacity: u128,
        /// How many of them host-local has, in which folders.
        host_local: Vec<(PathBuf, usize)>,
    },
    /// A requested address belongs to another attachment, or to host-local.
    #[error("the requested address {address} is taken by {holder}")]
    RequestedTaken {
        /// The address.
        address: IpAddr,
        /// Who has it.
        holder: String,
    },
    /// A requested address cannot be given to any attachment.
    #[error("the requested address {address} cannot be given: {why}; the ranges are {ranges}")]
    RequestedOutside {
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        why: &'static str,
        /// The ranges of the config.
        ranges: String,
    },
    /// The attachment's record cannot be read as one.
    #[error(
        "{path} is not a record of this store: {why}; a DEL of {attachment} removes it",
        path = .path.display()
    )]
    Damaged {
        /// The attachment that the file belongs to.
        attachment: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreError {
    fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { error, .. } => Some(error.kind()),
            _ => None,
        }
    }

    /// Whether the file system cannot be written at all.
    pub(super) fn is_read_only(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Whether the file system has no space or inode left for a new file.
    pub(super) fn is_out_of_space(&self) -> bool {
        matches!(
            self.io_kind(),
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        )
    }

    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io {
            operation,
            path,
            error,
        }
    }
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; the plugin and the agent must run as root, or the folder be theirs \
             (`ipam.dataDir` and `runDir` of the config place it)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the store needs a writable folder (`ipam.dataDir` and `runDir` of the config place it)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the file system is full: free some space on it"
        }
        io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => {
            "; something that does not belong to tweed has this name: move it elsewhere"
        }
        _ => "",
    }
}

fn list(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "no address of this store".to_owned(),
        some => some
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" and "),
    }
}

fn host_local_text(host_local: &[(PathBuf, usize)]) -> String {
    let texts = host_local.iter().map(|(folder, count)| {
        format!(
            ", {count} of them by files of host-local in {}, which the DEL of their containers \
             and a GC remove",
            folder.display()
        )
    });
    texts.collect()
}

fn found_text(state: Option<&State>) -> &'static str {
    match state {
        None => "no record",
        Some(State::Adding { .. }) => "another ADD",
        Some(State::Live) => "a live record",
        Some(State::Deleting) => "a DEL in progress",
    }
}
