//! A process that runs in the background and ends with the lab.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;
use crate::lab::Lab;
use crate::run::{command_line, wait_until};
use crate::signals::block_if_shutting_down;

/// Maximum time until a process that was told to end has ended.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A started process; killed on drop. Its output goes to a file.
#[derive(Debug)]
pub struct Background {
    lab: Lab,
    command: String,
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts `command` with stdout and stderr appended to the file `log`.
    ///
    /// # Errors
    /// [`LabError::Start`], or the log cannot be opened.
    pub fn start(lab: &Lab, command: &mut Command, log: &Path) -> Result<Self, LabError> {
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(log)
                .map_err(|e| LabError::file("open", log, e))
        };
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let child = lab.spawn(command)?;
        Ok(Self {
            lab: lab.clone(),
            command: command_line(command),
            child,
            log: log.to_owned(),
        })
    }

    /// The process ID. `ip netns exec` replaces itself by the program that it
    /// starts, so this is the program's own ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it has printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        fs::read(&self.log).map_or_else(
            |error| format!("(no output: {error})"),
            |text| String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// The file that it prints to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status; `None` while it runs.
    ///
    /// # Errors
    /// The system call fails.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(|source| LabError::Start {
            command: self.command.clone(),
            source,
        })
    }

    /// Sends it a signal. It is no error if it has ended already.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Stops all of its threads; `SIGCONT` lets them continue. The signal alone is only
    /// delivered when it is sent, and a thread goes on until it sees it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if a thread still runs after 30 s; [`LabError::File`] if the
    /// process has ended and was waited for.
    pub fn freeze(&self) -> Result<(), LabError> {
        self.signal(Signal::SIGSTOP);
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid()));
        wait_until(
            &format!("`{}` to stand still", self.command),
            STOP_LIMIT,
            || match running(&tasks) {
                Ok(running) if running.is_empty() => Ok(Ok(())),
                Ok(running) => Err(running.join("\n")),
                Err(error) => Ok(Err(LabError::file("read", &tasks, error))),
            },
        )?
    }

    /// Sends a signal and waits for the end, at most 30 s: the machine may be busy.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the last lines that it printed; the process
    /// still runs in this case.
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus, LabError> {
        // The ID of a process that was waited for may belong to another one.
        if let Some(status) = self.exit_status()? {
            return Ok(status);
        }
        self.signal(signal);
        let what = format!("the end of `{}` after {signal}", self.command);
        let child = &mut self.child;
        let log = &self.log;
        wait_until(&what, STOP_LIMIT, || match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!(
                "it still runs; last lines:\n{}",
                last_lines(log, 10)
            )),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The last lines that it printed.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        last_lines(&self.log, count)
    }
}

/// The lines `stat` of the threads in this folder of `/proc` that do not stand still.
fn running(tasks: &Path) -> io::Result<Vec<String>> {
    let mut running = Vec::new();
    for task in fs::read_dir(tasks)? {
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            // The thread has ended meanwhile.
            continue;
        };
        // The name before it may hold anything.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
        if state != Some(Some('T')) {
            running.push(stat);
        }
    }
    Ok(running)
}

fn last_lines(log: &Path, count: usize) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.lab.is_kept() {
            return;
        }
        block_if_shutting_down();
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lab
            .remove_journal_entry("processes", &self.child.id().to_string());
    }
}
