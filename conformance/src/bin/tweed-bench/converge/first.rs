//! Threads that do not wait for a CPU. On a busy one, who notes when something
//! came would note when its turn had come, and who says something would say it
//! a tick later.

use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use nix::unistd::gettid;
use tweed_lab::run;

/// Any real-time priority would do.
const PRIORITY: &str = "50";

/// Starts a thread that comes before others, as all do that it starts.
pub fn spawn_first(work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        // Its receiver waits below.
        let _ = tell.send(gettid());
        work();
    });
    let id = told.recv().context("the thread's number")?.to_string();
    run(Command::new("chrt").args(["--fifo", "--pid", PRIORITY, &id]))?;
    Ok(thread)
}
