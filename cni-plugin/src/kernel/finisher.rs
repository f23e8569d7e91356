//! Deleting links on their way out, behind the back of the DEL that put them
//! there.
//!
//! A DEL that leaves a link calls a finisher: this program again, detached, with
//! nothing of the runtime's open, so that no runtime waits for it. It lets a
//! moment pass, in which the links of other DELs gather, and deletes all of them
//! in one request: the kernel's grace periods are waited for once, and its lock,
//! which every ADD and DEL needs, is held once. So one finisher is on duty at a
//! time; the lock on [`leaving::DUTY`] says whether there is one, and goes with
//! its process.
//!
//! No link is forgotten: a DEL looks for a finisher after it has put its link
//! aside, and a finisher looks for links once more after it has gone off duty.
//! Whoever is killed in between leaves links that are down, renamed and marked:
//! the next DEL's finisher, GC, the agent and the end of the pod's namespace each
//! delete them too.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tweed_core::leaving;
use tweed_netlink::leaving::Deletion;
use tweed_netlink::{Error, Socket, link};

/// The program's argument that makes it a finisher.
const ARGUMENT: &str = "finish-leaving";
/// How long links gather. With the 20 to 60 ms that deleting takes it is well
/// within the second in which a link is to be gone.
const GATHER: Duration = Duration::from_millis(300);

/// Sees to it that a finisher comes by after this.
///
/// # Errors
/// When none is on duty and none can be started: then the caller has to be it.
pub(super) fn call(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let Some(duty) = leaving::go_on_duty(folder)? else {
        return Ok(());
    };
    // Not by the path in argv: an upgrade may have put another version there.
    Command::new("/proc/self/exe")
        .arg0("tweed")
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        // The lock goes along with the open file.
        .stdin(Stdio::from(duty))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Runs as the finisher if the program was started as one; gives the exit code.
#[must_use]
pub fn run_if_asked() -> Option<u8> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return None;
    }
    // Nobody listens: who comes next tries again, and tells of its failure.
    Some(u8::from(serve().is_err()))
}

fn serve() -> io::Result<()> {
    let duty = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    std::thread::sleep(GATHER);
    let mut socket = Socket::open().map_err(io::Error::other)?;
    let finished = finish(&mut socket);
    duty.unlock()?;
    // For DELs that saw this one on duty when it had looked already.
    finished
        .and_then(|()| finish(&mut socket))
        .map_err(io::Error::other)
}

/// Deletes all links on their way out, and waits until they are gone.
///
/// # Errors
/// The kernel's refusal.
pub(super) fn finish(socket: &mut Socket) -> Result<(), Error> {
    let links = link::list(socket)?;
    let answers = socket.batch(&Deletion::of(&links).requests())?;
    match answers.into_iter().find_map(Result::err) {
        Some(error) if !error.is_absent() => Err(error),
        _ => Ok(()),
    }
}
