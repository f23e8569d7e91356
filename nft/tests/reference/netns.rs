//! A network namespace that the test's own thread enters and leaves.

use std::fs::File;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace; it is gone with this and with all sockets made in it.
pub struct Netns(File);

impl Netns {
    /// A new one.
    pub fn new() -> Self {
        let outside = File::open(OWN).unwrap();
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("a network namespace cannot be made: run this test as root");
        let inside = File::open(OWN).unwrap();
        setns(&outside, CloneFlags::CLONE_NEWNET).unwrap();
        Self(inside)
    }

    /// Does `work` inside: sockets that it makes, and programs that it starts, stay there.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _back = Back(File::open(OWN).unwrap());
        setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    }

    /// Runs a shell's lines inside, which must all succeed.
    pub fn sh(&self, lines: &str) {
        let script = format!("set -e\n{lines}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::null());
        let output = self.enter(|| shell.output().unwrap());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{errors}");
    }
}

/// Brings the thread back where it was, also when a test fails.
struct Back(File);

impl Drop for Back {
    fn drop(&mut self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
    }
}
