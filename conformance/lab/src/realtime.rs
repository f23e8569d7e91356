//! Threads that do not wait for a CPU. A thread that notes when something arrived
//! would otherwise note when it got its turn on a busy CPU, which may be a tick of
//! 4 ms later.

use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::run::run;
use anyhow::Context;
use nix::unistd::gettid;

/// Any real-time priority is above all ordinary threads.
const PRIORITY: &str = "50";

/// Starts a thread with real-time priority (`SCHED_FIFO`). Threads that it starts
/// inherit that.
///
/// # Errors
/// The system refuses the priority.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        // The receiver waits below.
        let _ = sender.send(gettid());
        work();
    });
    let id = receiver.recv().context("a new thread has no number")?;
    run(Command::new("chrt").args(["--fifo", "--pid", PRIORITY, &id.to_string()]))?;
    Ok(thread)
}
