//! Faults at single system calls: `strace` kills a program at one of them, or makes it
//! fail with an error of the test's choice.
//!
//! A call is named by its kind and its number among those of its kind, as `strace`
//! counts them: the third `openat`. A program that is killed at the entry of a call does
//! not make it. So the kill at the exit of a call is the one at the entry of the next
//! call, of whatever kind, and all entries together are all moments that the kernel can
//! tell apart.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::background::Background;
use crate::error::LabError;
use crate::lab::Lab;
use crate::netns::Netns;
use crate::run::wait_until;

/// Maximum time until `strace` has attached itself to all threads of a process.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

/// One system call of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SystemCall {
    /// Its name: `openat`.
    pub name: String,
    /// Its number among the calls of this name, from 1 on.
    pub number: usize,
}

impl fmt::Display for SystemCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.number)
    }
}

/// A run of a program under `strace`, which writes what it sees to a file.
#[derive(Debug, Clone)]
pub struct Strace {
    words: Vec<OsString>,
    log: PathBuf,
    drafts: Vec<PathBuf>,
}

impl Strace {
    /// Changes nothing and writes down all system calls.
    #[must_use]
    pub fn new(log: &Path) -> Self {
        Self {
            words: Vec::new(),
            log: log.to_owned(),
            drafts: Vec::new(),
        }
    }

    /// Kills the program when it enters this call.
    #[must_use]
    pub fn kill_at(self, call: &SystemCall) -> Self {
        self.inject(call, "signal=KILL")
    }

    /// Makes this call fail with an error such as `ENOMEM`, without its effect.
    #[must_use]
    pub fn fail(self, call: &SystemCall, error: &str) -> Self {
        self.inject(call, &format!("error={error}"))
    }

    /// Delays this call.
    #[must_use]
    pub fn delay(self, call: &SystemCall, time: Duration) -> Self {
        self.inject(call, &format!("delay_enter={}ms", time.as_millis()))
    }

    /// Makes the first `count` calls of this name in each thread fail with an error, and
    /// sees no others.
    #[must_use]
    pub fn fail_first(self, count: usize, name: &str, error: &str) -> Self {
        self.word(format!("--trace={name}"))
            .word(format!("--inject={name}:error={error}:when=1..{count}"))
    }

    /// Answers every pause of the program with success at once.
    #[must_use]
    pub fn without_pauses(self) -> Self {
        self.word("--inject=clock_nanosleep:retval=0")
    }

    /// Also follows the threads and processes that the program starts. Each counts its
    /// own calls.
    #[must_use]
    pub fn with_threads(self) -> Self {
        self.word("--follow-forks")
    }

    /// Sees only the calls that name or use one of these files, and counts only them.
    #[must_use]
    pub fn on_files<'a>(self, files: impl IntoIterator<Item = &'a Path>) -> Self {
        files.into_iter().fold(self, |strace, file| {
            let mut word = OsString::from("--trace-path=");
            word.push(file);
            strace.word(word)
        })
    }

    /// Sees in addition the calls on the first draft that the program has in this folder:
    /// `.tweed-<its process ID>-0.new`. Only [`Strace::beside`] knows that name.
    #[must_use]
    pub fn on_drafts_in(mut self, folder: &Path) -> Self {
        self.drafts.push(folder.to_owned());
        self
    }

    fn inject(self, call: &SystemCall, what: &str) -> Self {
        let SystemCall { name, number } = call;
        self.word(format!("--inject={name}:{what}:when={number}"))
    }

    fn word(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    /// A command that runs the program in a namespace.
    #[must_use]
    pub fn command(&self, netns: &Netns, program: impl AsRef<OsStr>) -> Command {
        let mut command = netns.command("strace");
        command.arg("--output").arg(&self.log).args(&self.words);
        command.arg("--").arg(program);
        command
    }

    /// A command that becomes the program in a namespace, with `strace` as a process
    /// beside it: the process ID, signals and the exit status are the program's own. The
    /// file of calls may be incomplete for a moment after it has ended.
    #[must_use]
    pub fn beside(&self, netns: &Netns, program: impl AsRef<OsStr>) -> Command {
        // The folders of a lab have no characters that a shell would change.
        let draft =
            |folder: &PathBuf| format!(" --trace-path={}/.tweed-$$-0.new", folder.display());
        let drafts: String = self.drafts.iter().map(draft).collect();
        let script = format!("exec strace --daemonize{drafts} \"$@\"");
        let mut command = netns.command("sh");
        command.arg("-c").arg(script).arg("sh");
        command.arg("--output").arg(&self.log).args(&self.words);
        command.arg("--").arg(program);
        command
    }

    /// Attaches itself to a process that runs, until it is stopped, which the process
    /// does not notice.
    ///
    /// # Errors
    /// It cannot be started or cannot attach itself.
    pub fn attach(&self, lab: &Lab, pid: u32) -> Result<Background, LabError> {
        let mut command = Command::new("strace");
        command.arg("--output").arg(&self.log).args(&self.words);
        command.arg(format!("--attach={pid}"));
        let strace = Background::start(lab, &mut command, &self.log.with_extension("messages"))?;
        wait_until("strace to attach itself", ATTACH_LIMIT, || {
            let said = strace.output();
            said.contains(" attached").then_some(()).ok_or(said)
        })?;
        Ok(strace)
    }

    /// How many calls of each name the program has made. One that the kernel starts
    /// again counts once: a sysctl is written again and again while another process
    /// holds the kernel's network lock.
    ///
    /// # Errors
    /// The file cannot be read: there is no `strace`, which `conformance/setup.sh`
    /// installs.
    pub fn calls(&self) -> Result<BTreeMap<String, usize>, LabError> {
        let mut calls = BTreeMap::new();
        let text = self.text()?;
        for line in text.lines().filter(|line| !line.contains("= ? ERESTART")) {
            if let Some(name) = call_of(line) {
                *calls.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(calls)
    }

    /// The call that was made to fail, as `strace` writes it; none if the program did
    /// not get as far.
    ///
    /// # Errors
    /// As [`Strace::calls`].
    pub fn injected(&self) -> Result<Option<String>, LabError> {
        let text = self.text()?;
        let found = text.lines().find(|line| line.contains("(INJECTED)"));
        Ok(found.map(ToOwned::to_owned))
    }

    /// How many calls were made to fail.
    ///
    /// # Errors
    /// As [`Strace::calls`].
    pub fn injections(&self) -> Result<usize, LabError> {
        Ok(self.text()?.matches("(INJECTED)").count())
    }

    fn text(&self) -> Result<String, LabError> {
        fs::read_to_string(&self.log).map_err(|e| LabError::file("read", &self.log, e))
    }
}

/// The name of the call that a line is about; none for signals and the end, and for the
/// second half of a call that another process interrupted.
fn call_of(line: &str) -> Option<&str> {
    let after_pid = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let (name, _) = after_pid.split_once('(')?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_calls_and_others() {
        for (line, name) in [
            ("openat(AT_FDCWD, \"/x\", O_RDONLY) = 3", Some("openat")),
            ("27482 pwrite64(3, \"1 2\", 3, 0) = 3", Some("pwrite64")),
            (
                "27481 clone(child_stack=0x7f <unfinished ...>",
                Some("clone"),
            ),
            ("27481 <... clone resumed>) = 27482", None),
            ("--- SIGCHLD {si_signo=SIGCHLD} ---", None),
            ("+++ killed by SIGKILL +++", None),
        ] {
            assert_eq!(call_of(line), name, "{line}");
        }
    }
}
