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
//! A DEL deletes its link itself where nobody reaps such processes, and where the one
//! that is at work does not say that it is in the DEL's network namespace.
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

use nix::libc;
use tweed_core::atomic_file::make_folder;
use tweed_core::leaving::{self, Cleanup};
use tweed_core::netns;
use tweed_netlink::leaving::{Deletion, draw};
use tweed_netlink::{Error, Socket, link};

/// The program's argument that makes it a cleanup process.
const ARGUMENT: &str = "delete-leaving-links";
/// How long a cleanup process lets links gather. Together with the 20 to 60 ms
/// that deleting takes, this is well within the second in which a link is to be
/// deleted.
const GATHER: Duration = Duration::from_millis(300);

/// Ensures that a cleanup process looks for links after this call.
///
/// # Errors
/// When none is running and none can be started, or none should be: then the caller
/// has to delete the links itself.
pub(super) fn start(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    let netns = netns::own()?;
    let Some(lock) = leaving::try_lock_cleanup(folder)? else {
        // Only now: a holder says for which namespace it is after it got the lock, and
        // the one before it has removed what it said.
        let holder = Cleanup::read(folder).and_then(|holder| holder.netns);
        return if holder == Some(netns) {
            Ok(())
        } else {
            Err(io::Error::other(
                "the cleanup process is not known to be in this network namespace",
            ))
        };
    };
    // Whoever becomes the parent of a process whose parent has ended, process 1 as a
    // rule, has to reap it. A container's process 1 may not do that: then one zombie
    // is left, and not one for each DEL.
    if Cleanup::read(folder).is_some_and(|last| last.is_zombie()) {
        return Err(io::Error::other("nobody reaps the cleanup process"));
    }
    // The lock belongs to the open file, which the process inherits.
    let inherited = Stdio::from(lock.try_clone()?);
    // The process says so itself too; this is for DELs that come before.
    say(&lock, Some(netns));
    // Not by the path in argv: an upgrade may have put another version there.
    Command::new("/proc/self/exe")
        .arg0("tweed")
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(inherited)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Writes that this process has the lock, and for which network namespace. Where that
/// fails, as on a full disk for the first text of the file, other DELs delete their
/// links themselves.
fn say(lock: &File, netns: Option<u64>) {
    let pid = std::process::id();
    let _ = Cleanup { pid, netns }.write(lock);
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
    close_inherited();
    let lock = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    say(&lock, netns::own().ok());
    std::thread::sleep(GATHER);
    let mut socket = Socket::open().map_err(io::Error::other)?;
    let deleted = delete_leaving(&mut socket);
    say(&lock, None);
    lock.unlock()?;
    // For DELs that found the lock held when this process had looked already.
    deleted
        .and_then(|()| delete_leaving(&mut socket))
        .map_err(io::Error::other)
}

/// Closes what the caller of the plugin left open without close-on-exec: it may wait
/// until the last process that has such a file ends.
fn close_inherited() {
    #[expect(unsafe_code, reason = "nix has no such call")]
    // SAFETY: this process has just been started, and has opened no file of its own
    // beside the three standard streams.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Deletes all links that are marked as leaving, and waits until that is done.
///
/// # Errors
/// The kernel's first refusal, after all have been tried.
pub(super) fn delete_leaving(socket: &mut Socket) -> Result<(), Error> {
    let links = link::list(socket)?;
    let answers = socket.batch(&Deletion::of(&links, draw).requests())?;
    let mut refused = answers.into_iter().filter_map(Result::err);
    refused.find(|error| !error.is_absent()).map_or(Ok(()), Err)
}
