//! Another network namespace beside the node's: that of a thread, which runs there what
//! it is given and ends with the value.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

type Work = Box<dyn FnOnce() + Send>;

pub struct Namespace {
    thread: Pid,
    work: Option<Sender<Work>>,
    join: Option<JoinHandle<()>>,
}

impl Namespace {
    pub fn new() -> Self {
        let (work, received) = channel::<Work>();
        let (sender, thread) = channel();
        let join = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            sender.send(gettid()).unwrap();
            received.into_iter().for_each(|work| work());
        });
        Self {
            thread: thread.recv().unwrap(),
            work: Some(work),
            join: Some(join),
        }
    }

    /// What names it to `ip`.
    pub fn pid(&self) -> Pid {
        self.thread
    }

    pub fn path(&self) -> String {
        format!("/proc/{}/task/{}/ns/net", Pid::this(), self.thread)
    }

    /// Runs `work` inside, and gives what it returns.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = channel();
        let work = move || sender.send(work()).unwrap();
        self.work.as_ref().unwrap().send(Box::new(work)).unwrap();
        result.recv().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.work.take());
        let _ = self.join.take().map(JoinHandle::join);
    }
}
