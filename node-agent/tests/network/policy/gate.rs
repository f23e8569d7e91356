//! A place in each reconcile at which a test can hold the agent: a sysctl that is a named
//! pipe, which the agent reads after the records of pods and before their links.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::node::{Node, eventually};

const KERNELS: &str = "/proc/sys/net";
/// The sysctl, as the folders that lead to it and their last entry.
const PATH: [&str; 4] = ["ipv4", "conf", "default", "forwarding"];

/// Sysctls as the kernel has them, except for the gate.
pub struct Gate {
    folder: PathBuf,
}

/// A reconcile that is held at the gate. Dropped, it opens the gate: an agent that is held
/// cannot be stopped.
pub struct Held<'a> {
    gate: &'a Gate,
    pipe: Option<File>,
}

impl Gate {
    /// A gate that is open.
    pub fn new(node: &Node) -> Self {
        let folder = node.path("sysctl");
        let (mut real, mut shown) = (PathBuf::from(KERNELS), folder.clone());
        for next in PATH {
            fs::create_dir(&shown).unwrap();
            let entries = fs::read_dir(&real).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            for name in names.chain(["tweed.1".into()]).filter(|name| name != next) {
                symlink(real.join(&name), shown.join(&name)).unwrap();
            }
            real.push(next);
            shown.push(next);
        }
        let gate = Self { folder };
        gate.open();
        gate
    }

    /// What the agent gets as `--sysctl-dir`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on a reconcile that comes to the gate waits there.
    pub fn close(&self) {
        self.put(|new| mkfifo(new, Mode::S_IRWXU).unwrap());
    }

    /// Waits until a reconcile is at the gate.
    pub fn holds(&self) -> Held<'_> {
        let mut pipe = None;
        eventually(|| {
            let mut options = OpenOptions::new();
            // It can be opened as soon as somebody opens it to read.
            let opened = options
                .write(true)
                .custom_flags(O_NONBLOCK)
                .open(self.path());
            pipe = Some(opened.map_err(|error| error.to_string())?);
            Ok(())
        });
        Held { gate: self, pipe }
    }

    /// From now on reconciles pass.
    pub fn open(&self) {
        let real = PATH
            .iter()
            .fold(PathBuf::from(KERNELS), |path, next| path.join(next));
        self.put(|new| symlink(&real, new).unwrap());
    }

    /// Replaces the entry, so that who reads the one before is not met again.
    fn put(&self, make: impl Fn(&Path)) {
        let new = self.folder.join("new");
        make(&new);
        fs::rename(new, self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        PATH.iter()
            .fold(self.folder.clone(), |path, next| path.join(next))
    }
}

impl Held<'_> {
    /// Lets it go on; the next one meets the gate as it is now.
    pub fn release(mut self) {
        let_go(self.pipe.take());
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.pipe.is_some() {
            self.gate.open();
            let_go(self.pipe.take());
        }
    }
}

fn let_go(pipe: Option<File>) {
    pipe.unwrap().write_all(b"1\n").unwrap();
}
