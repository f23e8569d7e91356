//! The program `tweed`: see the library.
//!
//! It runs once or more for every pod, so it skips what std does before `main`: to
//! tell a stack overflow from another fault, std reads `/proc/self/maps`, which
//! takes several percent of the time of an ADD. [`prepare`] does the part that is
//! needed here.

#![no_main]

use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::os::fd::{AsFd, IntoRawFd};
use std::{fs::OpenOptions, io};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};
use tweed_cni::{Invocation, input_limit, run};
use tweed_cni_plugin::datapath::veth::{LinuxKernel, Veth, run_cleanup_if_requested};
use tweed_cni_plugin::{Tweed, delegate::Processes};
use tweed_core::stdin::Stdin;

/// The version, with its commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TWEED_COMMIT"), ")");

#[expect(unsafe_code, reason = "the C library calls it by this name")]
// SAFETY: no other `main` is linked into this program.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    if prepare().is_err() {
        return 1;
    }
    // No runtime passes arguments.
    if count == 2 {
        #[expect(unsafe_code, reason = "std has the arguments only of its own `main`")]
        // SAFETY: the C library passes so many pointers to texts that end with a zero.
        let argument = unsafe { CStr::from_ptr(*arguments.add(1)) };
        if argument == c"--version" {
            return writeln!(io::stdout(), "tweed {VERSION}").is_err().into();
        }
    }
    if let Some(exit) = run_cleanup_if_requested() {
        return exit.into();
    }
    let env = |name: &str| std::env::var_os(name);
    let invocation = Invocation {
        env: &env,
        stdin: &mut Stdin::new(io::stdin().lock(), input_limit(&env)),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    let datapath = Veth::new(LinuxKernel::with_background_cleanup());
    let mut plugin = Tweed::new(datapath, Processes::default());
    run(invocation, &mut plugin).into()
}

/// Writing to a closed pipe returns an error instead of ending the process; another
/// plugin can be waited for although the caller ignores SIGCHLD, which is inherited; and no
/// file that the plugin opens gets the number of a standard stream that the caller
/// left closed.
fn prepare() -> io::Result<()> {
    for (which, handler) in [
        (Signal::SIGPIPE, SigHandler::SigIgn),
        (Signal::SIGCHLD, SigHandler::SigDfl),
    ] {
        #[expect(unsafe_code, reason = "signal(2) is unsafe by its handler")]
        // SAFETY: no handler of this program runs.
        unsafe { signal(which, handler) }?;
    }
    let null = ["/dev/null"].as_slice();
    for (stream, devices) in [
        (io::stdin().as_fd(), null),
        // An ADD whose result goes nowhere must fail, so that it is undone.
        (io::stdout().as_fd(), ["/dev/full", "/dev/null"].as_slice()),
        (io::stderr().as_fd(), null),
    ] {
        if fcntl(stream, FcntlArg::F_GETFD).is_err() {
            // The kernel assigns the lowest free number, which is this one.
            let open = |device| OpenOptions::new().read(true).write(true).open(device);
            let opened = devices.iter().find_map(|device| open(device).ok());
            let _ = opened.ok_or(io::ErrorKind::NotFound)?.into_raw_fd();
        }
    }
    Ok(())
}
