//! Hosts for the tests: each is a thread in a network namespace of its own,
//! which is gone with the thread, however the test ends.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that works in it.
pub struct Host {
    jobs: Sender<Job>,
    thread_id: i32,
}

impl Host {
    /// A new namespace with its loopback up.
    pub fn new() -> Self {
        let (jobs, queue) = channel::<Job>();
        let (tell, told) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("a network namespace cannot be made: run this test as root");
            tell.send(gettid().as_raw()).unwrap();
            for job in queue {
                job();
            }
        });
        let thread_id = told
            .recv()
            .expect("a network namespace cannot be made: run this test as root");
        let host = Self { jobs, thread_id };
        host.sh("ip link set lo up");
        host
    }

    /// Runs `work` in the namespace and waits for it; a panic in it is the
    /// test's.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let job = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // The test may be gone.
            let _ = tell.send(result);
        };
        self.jobs.send(Box::new(job)).unwrap();
        match told.recv().unwrap() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Opens a socket in the namespace. Where another test starts a program at
    /// this moment, its child holds the last socket of the same address until
    /// it has become that program, so an address in use is tried again. So is one of IPv6
    /// that the kernel, which is told of it a moment before, has not settled yet.
    pub fn bind<S: Send + 'static>(&self, open: impl Fn() -> io::Result<S> + Send + 'static) -> S {
        self.run(move || {
            for _ in 0..1000 {
                match open() {
                    Err(error)
                        if [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable]
                            .contains(&error.kind()) =>
                    {
                        thread::sleep(Duration::from_millis(5));
                    }
                    result => return result.unwrap(),
                }
            }
            open().unwrap()
        })
    }

    /// Runs a shell's lines, which must all succeed; gives what they print.
    pub fn sh(&self, lines: impl Display) -> String {
        let script = format!("set -e\n{lines}");
        self.run(move || {
            let output = Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{script}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        })
    }

    /// What `ip … netns` takes to put a link into this host.
    pub fn netns(&self) -> i32 {
        self.thread_id
    }
}
