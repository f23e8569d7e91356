//! The program `tweed`: see the library.
//!
//! It is run for every pod, so it does without what std does before `main`: to
//! tell a stack overflow from another fault, std reads `/proc/self/maps`, which
//! with all that goes along costs several percent of an ADD. [`prepare`] does the
//! part that is needed here.

#![no_main]

use std::ffi::{c_char, c_int};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};
use tweed_cni::{Edges, run};
use tweed_cni_plugin::Tweed;
use tweed_cni_plugin::delegate::Processes;
use tweed_cni_plugin::kernel::{LinuxKernel, finish_if_asked};

#[expect(unsafe_code, reason = "the C library calls it by its name")]
// SAFETY: no other `main` is linked into this program.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    if prepare().is_err() {
        return 1;
    }
    if let Some(exit) = finish_if_asked() {
        return exit.into();
    }
    let edges = Edges {
        env: &|name: &str| std::env::var_os(name),
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    let mut plugin = Tweed::new(LinuxKernel::finishing_behind(), Processes);
    run(edges, &mut plugin).into()
}

/// A closed pipe is an error and not the end; and no file of the plugin's ever
/// gets the number of a standard stream that the caller left closed.
fn prepare() -> io::Result<()> {
    #[expect(unsafe_code, reason = "signal(2) is unsafe by its handler")]
    // SAFETY: nothing is run when the signal comes: it is ignored.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
    for stream in [
        io::stdin().as_fd(),
        io::stdout().as_fd(),
        io::stderr().as_fd(),
    ] {
        if fcntl(stream, FcntlArg::F_GETFD).is_err() {
            // It gets the lowest number that is free: this one.
            let nothing = OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/null")?;
            let _ = nothing.into_raw_fd();
        }
    }
    Ok(())
}
