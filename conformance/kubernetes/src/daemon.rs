//! A long-running program of a cluster. Its process ID and its log are files, so that
//! it can be found after the program that started it has ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use tweed_lab::Lab;
use tweed_lab::LabError;
use tweed_lab::{command_line, wait_until};
use tweed_lab::{is_dying, start_time};

/// A program by its name in a folder: `<name>.process` and `<name>.log`.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    name: &'static str,
    record: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// A handle to a program that may not run yet.
    pub(crate) fn new(folder: &Path, name: &'static str) -> Self {
        Self {
            name,
            record: folder.join(format!("{name}.process")),
            log: folder.join(format!("{name}.log")),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Starts it with its output appended to the log.
    pub(crate) fn start(&self, lab: &Lab, command: &mut Command) -> Result<(), LabError> {
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(&self.log)
                .map_err(|e| LabError::file("open", &self.log, e))
        };
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let mut child = lab.spawn(command)?;
        let pid = child.id().cast_signed();
        let started = start_time(pid).ok_or_else(|| LabError::Start {
            command: command_line(command),
            source: std::io::Error::other("it ended at once"),
        })?;
        // A process must be waited for by its parent; this thread does nothing else.
        std::thread::spawn(move || child.wait());
        fs::write(&self.record, format!("{pid} {started}"))
            .map_err(|e| LabError::file("write", &self.record, e))
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Its process ID in the PID namespace of the machine; `None` if it has ended.
    pub(crate) fn pid(&self) -> Option<i32> {
        let (pid, started) = self.recorded()?;
        (start_time(pid) == Some(started)).then_some(pid)
    }

    /// Process ID and start time of the last start.
    fn recorded(&self) -> Option<(i32, u64)> {
        let text = fs::read_to_string(&self.record).ok()?;
        let (pid, started) = text.split_once(' ')?;
        Some((pid.parse().ok()?, started.parse().ok()?))
    }

    /// Sends it a signal and waits until it has ended. It is no error if it does not
    /// run.
    pub(crate) fn stop(&self, signal: Signal) -> Result<(), LabError> {
        if let Some(pid) = self.pid() {
            // It is no error if it has ended meanwhile.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        self.wait_for_end()
    }

    /// Waits until it and all of its threads have ended, at most 60 s.
    pub(crate) fn wait_for_end(&self) -> Result<(), LabError> {
        let what = format!("the end of {}", self.name);
        wait_until(&what, Duration::from_secs(60), || {
            if self.is_running() || self.recorded().is_some_and(|(pid, _)| is_dying(pid)) {
                return Err(format!("it still runs; {}", self.log_tail()));
            }
            Ok(())
        })
    }

    /// The path of its log and the last lines of it, for an error.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("{} ends with:\n{tail}", self.log.display())
    }
}
