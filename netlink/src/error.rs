//! Errors of requests to the kernel: operation, object, cause.

use std::io;

use nix::errno::Errno;

/// An operation that failed, and on what.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {object}: {cause}")]
pub struct Error {
    /// The operation: `create link`, `list routes`.
    pub operation: &'static str,
    /// Its object, as a person would name it.
    pub object: String,
    /// The reason.
    pub cause: Cause,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The kernel refused it, with its extended answer where it gave one.
    #[error("{}", kernel_text(*errno, message.as_deref()))]
    Kernel {
        /// The error number.
        errno: Errno,
        /// Text of `NLMSGERR_ATTR_MSG`.
        message: Option<String>,
    },
    /// The socket, or a file, failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The kernel's answer could not be read.
    #[error("the kernel's answer cannot be read: {0}")]
    Undecodable(String),
    /// What was dumped changed each time while it was being dumped.
    #[error("the dump was interrupted by changes {0} times in a row; try again")]
    Interrupted(u32),
    /// The kernel did not answer within the socket's time limit.
    #[error("the kernel did not answer in time")]
    TimedOut,
}

fn kernel_text(errno: Errno, message: Option<&str>) -> String {
    match message {
        Some(text) => format!("{} ({text})", errno.desc()),
        None => errno.desc().to_owned(),
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Error {
    pub(crate) fn new(
        operation: &'static str,
        object: impl Into<String>,
        cause: impl Into<Cause>,
    ) -> Self {
        Self {
            operation,
            object: object.into(),
            cause: cause.into(),
        }
    }

    /// The error number, where the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match &self.cause {
            Cause::Kernel { errno, .. } => Some(*errno),
            Cause::Io(error) => error.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }

    /// Whether the kernel refused a change that it makes as a whole or not at all, or did not
    /// get it: all is as it was. Of other errors that is not known.
    pub fn is_refusal(&self) -> bool {
        let too_large = || self.errno() == Some(Errno::EMSGSIZE);
        matches!(self.cause, Cause::Kernel { .. }) || too_large()
    }

    /// Whether the object was not there: for a removal that is success.
    pub fn is_absent(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL)
        )
    }

    /// Whether the object was there already.
    pub fn is_present(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }
}
