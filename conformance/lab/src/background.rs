//! A process that runs beside the lab and ends with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;
use crate::lab::Lab;
use crate::run::{line, wait_until};
use crate::signals::end_here_if_leaving;

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
            command: line(command),
            child,
            log: log.to_owned(),
        })
    }

    /// The process's number. `ip netns exec` becomes the program that it
    /// starts, so this is the program's own.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has printed so far.
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

    /// How it ended; none while it runs.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(|source| LabError::Start {
            command: self.command.clone(),
            source,
        })
    }

    /// Sends it a signal; one that has ended already is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Sends a signal and waits for the end, at most 10 s.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the last lines that it printed; it still
    /// runs then.
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus, LabError> {
        // A process that was waited for has given its number back.
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        self.signal(signal);
        let what = format!("the end of `{}` after {signal}", self.command);
        let child = &mut self.child;
        let log = &self.log;
        wait_until(&what, Duration::from_secs(10), || match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!("it runs on; last lines:\n{}", last_lines(log, 10))),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The last lines that it printed.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        last_lines(&self.log, count)
    }
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
        end_here_if_leaving();
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lab.forget("processes", &self.child.id().to_string());
    }
}
