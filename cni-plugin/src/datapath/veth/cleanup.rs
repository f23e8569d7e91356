//! Deletion of the links that a DEL has marked as leaving, in the background of
//! that DEL.
//!
//! A DEL that has marked a link starts a cleanup process: this program again,
//! detached, with none of the runtime's files open, so that no runtime waits for
//! it. The process waits a moment, in which the links of other DELs gather, and
//! then deletes all of them in one request: so the kernel's grace periods are
//! waited for once, and the kernel's lock, which every ADD and DEL needs, is held
//! once. One cleanup process runs at a time. The lock on [`leaving::LOCK_FILE`]
//! says whether there is one; it ends with its process.
//!
//! No link is forgotten: a DEL looks for a cleanup process after it has marked
//! its link, and a cleanup process looks for links once more after it has released
//! the lock. A process that is killed in between leaves links that are down,
//! renamed and marked: the next DEL, GC, the agent and the end of the pod's
//! namespace each delete them too.

use std::process::{Command, Stdio};
use std::{
    env, ffi::OsStr, fs::File, io, os::fd::AsFd, os::unix::process::CommandExt, path::Path,
    time::Duration,
};

use tweed_core::leaving;
use tweed_netlink::{Error, Socket, leaving::Deletion, link};

/// The program's argument that makes it a cleanup process.
const ARGUMENT: &str = "delete-leaving-links";
/// How long a cleanup process lets links gather. Together with the 20 to 60 ms
/// that deleting takes, this is well within the second in which a link is to be
/// deleted.
const GATHER: Duration = Duration::from_millis(300);

/// Ensures that a cleanup process looks for links after this call.
///
/// # Errors
/// When none is running and none can be started: then the caller has to delete
/// the links itself.
pub(super) fn start(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let Some(lock) = leaving::try_lock_cleanup(folder)? else {
        return Ok(());
    };
    // Not by the path in argv: an upgrade may have put another version there.
    Command::new("/proc/self/exe")
        .arg0("tweed")
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        // The lock belongs to the open file, which the process inherits.
        .stdin(Stdio::from(lock))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Runs as the cleanup process if the program was started as one, and returns the
/// exit code.
#[must_use]
pub fn run_if_requested() -> Option<u8> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return None;
    }
    // Nobody reads an error message of this process. The next DEL or GC tries
    // again, and reports its own failure.
    Some(u8::from(run().is_err()))
}

fn run() -> io::Result<()> {
    let lock = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    std::thread::sleep(GATHER);
    let mut socket = Socket::open().map_err(io::Error::other)?;
    let deleted = delete_leaving(&mut socket);
    lock.unlock()?;
    // For DELs that found the lock held when this process had looked already.
    deleted
        .and_then(|()| delete_leaving(&mut socket))
        .map_err(io::Error::other)
}

/// Deletes all links that are marked as leaving, and waits until that is done.
///
/// # Errors
/// The kernel's first refusal, after all have been tried.
pub(super) fn delete_leaving(socket: &mut Socket) -> Result<(), Error> {
    let links = link::list(socket)?;
    let answers = socket.batch(&Deletion::of(&links).requests())?;
    let mut refused = answers.into_iter().filter_map(Result::err);
    refused.find(|error| !error.is_absent()).map_or(Ok(()), Err)
}
