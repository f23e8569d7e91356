//! A named network namespace, and ways to run code inside it.
//!
//! A thread that enters a namespace is not used for anything else: either
//! `ip netns exec` runs a program there, or a closure runs on a new thread that
//! ends with it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use serde_json::Value;

use crate::error::LabError;
use crate::lab::Lab;
use crate::run::{run_holding_guard, run_with};
use crate::signals::block_if_shutting_down;
use crate::teardown::delete_namespace;

/// A network namespace under `/run/netns`, deleted on drop.
#[derive(Debug)]
pub struct Netns {
    lab: Lab,
    name: String,
    is_borrowed: bool,
}

impl Netns {
    pub(crate) fn create(lab: &Lab, short: &str) -> Result<Self, LabError> {
        let name = format!("{}-{short}", lab.name());
        if PathBuf::from("/run/netns").join(&name).exists() {
            return Err(LabError::Name {
                name,
                why: "a network namespace of that name exists already",
            });
        }
        lab.journalled("namespaces", &name, || {
            run_holding_guard(Command::new("ip").args(["netns", "add", &name]))
        })?;
        let netns = Self {
            lab: lab.clone(),
            name,
            is_borrowed: false,
        };
        netns.ip(["link set lo up"])?;
        Ok(netns)
    }

    /// A namespace that another program has created in this lab. It is not deleted
    /// on drop.
    #[must_use]
    pub fn existing(lab: &Lab, short: &str) -> Self {
        Self {
            lab: lab.clone(),
            name: format!("{}-{short}", lab.name()),
            is_borrowed: true,
        }
    }

    /// Deletes it, even if another program has created it.
    pub fn delete(mut self) {
        self.is_borrowed = false;
    }

    /// Its name, as `ip netns` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, as a runtime passes it to a plugin.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// The lab that owns it.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// A command that runs inside, with the `/sys` of this namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// As [`Netns::command`], with this folder read-only for the program and those that
    /// it starts. Nobody else sees it: `ip netns exec` gives its program a mount
    /// namespace of its own.
    #[must_use]
    pub fn command_with_read_only(&self, folder: &Path, program: impl AsRef<OsStr>) -> Command {
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        let mut command = self.command("sh");
        command.args(["-c", script]).arg(folder).arg(program);
        command
    }

    /// Runs a program inside, named by the first word, and returns its stdout.
    ///
    /// # Errors
    /// [`LabError::Failed`] with what it printed if it did not exit with 0.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        let mut words = words.into_iter().map(|word| word.as_ref().to_owned());
        let program = words.next().unwrap_or_default();
        let arguments: Vec<OsString> = words.collect();
        self.finish(Command::new(program).args(arguments), "")
    }

    /// As [`Netns::run`], for a command line whose words hold no spaces.
    ///
    /// # Errors
    /// As [`Netns::run`].
    pub fn sh(&self, line: &str) -> Result<String, LabError> {
        self.run(line.split_whitespace())
    }

    /// Runs a command line inside and parses its stdout as JSON. No output is an
    /// empty array, as with `ip -j`.
    ///
    /// # Errors
    /// As [`Netns::run`]; [`LabError::Output`] if it is not JSON.
    pub fn json(&self, line: &str) -> Result<Value, LabError> {
        let text = self.sh(line)?;
        if text.trim().is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        serde_json::from_str(&text).map_err(|_| LabError::Output {
            command: line.to_owned(),
            expected: "JSON",
            output: text,
        })
    }

    /// Runs lines of `ip`, without the word `ip`, in one batch.
    ///
    /// # Errors
    /// [`LabError::Failed`] at the first line that fails; earlier lines have been
    /// applied.
    pub fn ip<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) -> Result<(), LabError> {
        let mut batch = String::new();
        for line in lines {
            batch.push_str(line.as_ref());
            batch.push('\n');
        }
        self.finish(Command::new("ip").args(["-batch", "-"]), &batch)
            .map(drop)
            .map_err(|error| {
                error.with_command(|command| format!("{command}` of `{}", batch.trim()))
            })
    }

    /// Loads a ruleset by `nft -f -` inside.
    ///
    /// # Errors
    /// [`LabError::Failed`] with nft's error.
    pub fn nft(&self, ruleset: &str) -> Result<(), LabError> {
        self.finish(Command::new("nft").args(["-f", "-"]), ruleset)
            .map(drop)
    }

    /// Runs a program to its end that needs the namespace only and not its `/sys`. It is started
    /// by a thread there, which takes a fraction of the time of `ip netns exec`: that is a
    /// program of its own, and makes a mount namespace.
    fn finish(&self, command: &mut Command, input: &str) -> Result<String, LabError> {
        self.enter(|| run_with(command, input))?.map_err(|error| {
            error.with_command(|command| format!("ip netns exec {} {command}", self.name))
        })
    }

    /// Runs a closure on a new thread inside the namespace. Sockets that it opens
    /// belong to the namespace also after the thread has ended.
    ///
    /// # Errors
    /// [`LabError::Namespace`] if the namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        Self::enter_named(&self.name, work)
    }

    /// Opens a socket in the namespace. Where another thread starts a program at this
    /// moment, its child holds the last socket of the same address until it has become
    /// that program, so an address in use is tried again for five seconds.
    ///
    /// # Errors
    /// [`LabError::Namespace`] if the namespace cannot be entered or the socket cannot be
    /// opened.
    pub fn listen<S: Send>(&self, open: impl Fn() -> io::Result<S> + Send) -> Result<S, LabError> {
        let opened = self.enter(move || {
            for _ in 0..1000 {
                match open() {
                    Err(error) if error.kind() == ErrorKind::AddrInUse => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    result => return result,
                }
            }
            open()
        })?;
        opened.map_err(|source| LabError::Namespace {
            action: "listen",
            namespace: self.name.clone(),
            source,
        })
    }

    pub(crate) fn enter_named<T: Send>(
        name: &str,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        let failed = |source| {
            block_if_shutting_down();
            LabError::Namespace {
                action: "enter",
                namespace: name.to_owned(),
                source,
            }
        };
        let path = Path::new("/run/netns").join(name);
        let file = File::open(path).map_err(failed)?;
        let outcome = std::thread::scope(|scope| {
            scope
                .spawn(move || setns(file, CloneFlags::CLONE_NEWNET).map(|()| work()))
                .join()
        });
        match outcome {
            Ok(entered) => entered.map_err(|errno| failed(errno.into())),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Reads a sysctl by its path below `/proc/sys/net`, as in
    /// `ipv4/conf/all/rp_filter`.
    ///
    /// # Errors
    /// [`LabError::File`] if there is no such sysctl.
    pub fn sysctl(&self, key: &str) -> Result<String, LabError> {
        let path = PathBuf::from("/proc/sys/net").join(key);
        self.enter(|| fs::read_to_string(&path))?
            .map(|text| text.trim().to_owned())
            .map_err(|e| LabError::file("read", &path, e))
    }

    /// Writes a sysctl by its path below `/proc/sys/net`.
    ///
    /// # Errors
    /// [`LabError::File`] if the kernel refuses.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        let path = PathBuf::from("/proc/sys/net").join(key);
        self.enter(|| fs::write(&path, value))?
            .map_err(|e| LabError::file("write", &path, e))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if self.lab.is_kept() || self.is_borrowed {
            return;
        }
        block_if_shutting_down();
        // If it fails, the journal keeps the entry: the lab's teardown tries
        // again and reports the error.
        if delete_namespace(&self.name).is_ok() {
            self.lab.remove_journal_entry("namespaces", &self.name);
        }
    }
}
