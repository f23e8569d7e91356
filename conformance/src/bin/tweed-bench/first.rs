//! Threads that do not wait for a CPU. On a busy one, who notes when something
//! came would note when its turn had come, and who says something would say it
//! a tick later.

use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use nix::unistd::{Pid, gettid};
use tweed_lab::run;

/// Any real-time priority would do.
const PRIORITY: &str = "50";

/// Whether what a thread starts comes before others, too.
#[derive(Clone, Copy)]
enum Children {
    First,
    InTurn,
}

/// Starts a thread that comes before others, as all do that it starts.
pub fn spawn_first(work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        // Its receiver waits below.
        let _ = tell.send(gettid());
        work();
    });
    put_first(told.recv().context("the thread's number")?, Children::First)?;
    Ok(thread)
}

/// Puts the calling thread, and none that it starts, before others.
pub fn go_first() -> anyhow::Result<()> {
    put_first(gettid(), Children::InTurn)
}

fn put_first(thread: Pid, children: Children) -> anyhow::Result<()> {
    let mut chrt = Command::new("chrt");
    if matches!(children, Children::InTurn) {
        chrt.arg("--reset-on-fork");
    }
    run(chrt.args(["--fifo", "--pid", PRIORITY, &thread.to_string()]))?;
    Ok(())
}
