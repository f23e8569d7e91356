//! Working inside another network namespace.
//!
//! A thread is in one network namespace; what it opens there (sockets, files
//! under `/proc/sys/net`) stays there. So: enter, open, come back. Never on a
//! thread of an async runtime, where other tasks would find themselves inside.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;

use crate::error::{Cause, Error};

const OWN: &str = "/proc/thread-self/ns/net";

/// Runs `work` with the calling thread inside `namespace`.
///
/// # Errors
/// When the namespace cannot be entered (`work` was not run), or the thread
/// cannot come back (then it must not go on).
pub fn inside<T>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T) -> Result<T, Error> {
    struct Home(File);
    impl Home {
        fn go(&self) -> nix::Result<()> {
            setns(&self.0, CloneFlags::CLONE_NEWNET)
        }
    }
    impl Drop for Home {
        // Only a panic in `work` leaves without having gone home.
        fn drop(&mut self) {
            let _ = self.go();
        }
    }

    let home = Home(open(Path::new(OWN))?);
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| Error::new("enter", "the network namespace", Cause::Io(errno.into())))?;
    let result = work();
    home.go().map_err(|errno| {
        Error::new(
            "return from",
            "the network namespace",
            Cause::Io(errno.into()),
        )
    })?;
    Ok(result)
}

/// Opens a network namespace by path.
///
/// # Errors
/// When the path is not there or may not be opened.
pub fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| {
        Error::new(
            "open",
            format!("the network namespace {}", path.display()),
            error.into(),
        )
    })
}

/// Whether `namespace` is the one that the calling thread is in.
///
/// # Errors
/// When one of the two cannot be looked at.
pub fn is_own(namespace: BorrowedFd<'_>) -> Result<bool, Error> {
    let identity = |fd: BorrowedFd<'_>| {
        fstat(fd)
            .map(|stat| (stat.st_dev, stat.st_ino))
            .map_err(|errno| Error::new("look at", "a network namespace", Cause::Io(errno.into())))
    };
    Ok(identity(namespace)? == identity(open(Path::new(OWN))?.as_fd())?)
}
