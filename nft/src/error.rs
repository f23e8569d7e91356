//! What can go wrong with the table, and what to do about it.

use std::{io, path::PathBuf};

use nix::errno::Errno;
use tweed_core::atomic_file::ReplaceError;
use tweed_netlink::Cause;

/// Why the table could not be read or written. After any of these the next
/// pass looks at the whole table again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a netlink request, or cannot be asked.
    #[error(transparent)]
    Netlink(#[from] tweed_netlink::Error),
    /// The kernel has no nf_tables for this namespace.
    #[error("the kernel offers no nf_tables ({0}): load the modules nf_tables and nfnetlink")]
    NoNfTables(Cause),
    /// The agent may not change this namespace's network.
    #[error(
        "the kernel does not let the agent use nf_tables ({0}): give it CAP_NET_ADMIN, or run it as root"
    )]
    NotAllowed(Cause),
    /// This table was read so many times, and changed each time meanwhile.
    #[error("{0} changed {1} times while it was read: the next pass tries again")]
    Interrupted(String, usize),
    /// The program `nft` is not there.
    #[error("{0} was not found: install the package nftables, or give --nft its path")]
    NftMissing(PathBuf),
    /// The program `nft` could not be run.
    #[error("cannot run {0}: {1}")]
    NftRun(PathBuf, #[source] io::Error),
    /// The text for `nft` could not be written.
    #[error("cannot write a file in {0} for nft to read: {1}")]
    Script(PathBuf, #[source] io::Error),
    /// The program `nft` did not end within so many seconds.
    #[error("{0} has not loaded the table after {1} s: stopped it, the next pass tries again")]
    NftSlow(PathBuf, u64),
    /// The program `nft` was still running when the agent had to stop.
    #[error("{0} was stopped with the agent: the next start loads the table")]
    NftStopped(PathBuf),
    /// The program `nft` refused the table.
    #[error("{path} could not load table {table}: {stderr}")]
    NftRefused {
        /// Family and name of the table.
        table: String,
        /// The program.
        path: PathBuf,
        /// What it said.
        stderr: String,
    },
    /// The marks of connections are cleared in a thread of its own.
    #[error("cannot start a thread: {0}: the next pass tries again")]
    Thread(#[source] io::Error),
    /// The file that remembers how the table looks could not be written.
    #[error(transparent)]
    Baseline(#[from] ReplaceError),
}

impl Error {
    /// Whether `nft` refused the table: then its rules are as they were.
    pub fn is_of_nft(&self) -> bool {
        matches!(self, Self::NftRefused { .. })
    }

    /// Whether the table is known to be as it was before a change that failed.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Netlink(error) if error.is_refusal())
    }

    /// What it means that the kernel gives no nf_tables at all.
    pub(super) fn unavailable(error: tweed_netlink::Error) -> Self {
        match error.errno() {
            Some(Errno::EPERM | Errno::EACCES) => Self::NotAllowed(error.cause),
            _ => Self::NoNfTables(error.cause),
        }
    }
}
