//! Working inside another network namespace.
//!
//! A thread is in one network namespace; what it opens there (sockets, files
//! under `/proc/sys/net`) stays there. So a thread enters, opens and returns. This
//! must not happen on a thread of an async runtime: other tasks would run inside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{fs::File, path::Path};

use nix::libc::{self, c_ulong};
use nix::sched::{CloneFlags, setns};
use nix::{errno::Errno, sys::stat::fstat};

use crate::error::Error;

const OWN: &str = "/proc/thread-self/ns/net";
/// Of `linux/sockios.h`: the network namespace of a socket.
const SIOCGSKNS: c_ulong = 0x894C;

/// The network namespace of the calling thread, to return to.
#[derive(Debug)]
pub struct Home(File);

impl Home {
    /// That of the calling thread.
    ///
    /// # Errors
    /// When `/proc` is not mounted, or cannot be read.
    pub fn open() -> Result<Self, Error> {
        open(Path::new(OWN)).map(Self)
    }

    /// That of a socket; this needs no `/proc`.
    ///
    /// # Errors
    /// When the caller may not configure that namespace.
    pub fn of_socket(socket: &impl AsRawFd) -> Result<Self, Error> {
        #[expect(unsafe_code, reason = "nix has no such call")]
        // SAFETY: this request takes no argument.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) };
        let fd = Errno::result(answer)
            .map_err(|errno| Error::new("look up", "the network namespace of a socket", errno))?;
        #[expect(unsafe_code, reason = "the kernel gives a number")]
        // SAFETY: it is that of a file which was opened for this caller, with
        // close-on-exec set, and which nobody else knows.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(file.into()))
    }

    /// Whether `namespace` is this one.
    ///
    /// # Errors
    /// When one of the two cannot be looked at.
    pub fn is(&self, namespace: BorrowedFd<'_>) -> Result<bool, Error> {
        let identity = |fd: BorrowedFd<'_>| {
            fstat(fd)
                .map(|stat| (stat.st_dev, stat.st_ino))
                .map_err(|errno| Error::new("look at", "a network namespace", errno))
        };
        Ok(identity(namespace)? == identity(self.0.as_fd())?)
    }

    /// Whether the calling thread is in this namespace. It is not after a
    /// [`visit`](Self::visit) from which it could not return.
    ///
    /// # Errors
    /// As [`Home::open`] and [`Home::is`].
    pub fn is_current(&self) -> Result<bool, Error> {
        self.is(Self::open()?.0.as_fd())
    }

    /// Runs `work` with the calling thread inside `namespace`, then returns to this
    /// namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered (`work` was not run), or the thread
    /// cannot return (then the caller must end it).
    pub fn visit<T>(
        &self,
        namespace: BorrowedFd<'_>,
        work: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        struct Away<'a>(&'a Home);
        impl Drop for Away<'_> {
            // Reached only if `work` panics.
            fn drop(&mut self) {
                let _ = self.0.enter();
            }
        }

        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::new("enter", "the network namespace", errno))?;
        let away = Away(self);
        let result = work();
        std::mem::forget(away);
        self.enter()
            .map_err(|errno| Error::new("return from", "the network namespace", errno))?;
        Ok(result)
    }

    fn enter(&self) -> nix::Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET)
    }
}

/// [`Home::visit`] from the calling thread's namespace.
///
/// # Errors
/// As [`Home::open`] and [`Home::visit`].
pub fn inside<T>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T) -> Result<T, Error> {
    Home::open()?.visit(namespace, work)
}

/// Opens a network namespace by path.
///
/// # Errors
/// When the path is not there or may not be opened.
pub fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| {
        let object = format!("the network namespace {}", path.display());
        Error::new("open", object, error)
    })
}
