//! A long-running program of a cluster: its number and its log are files, so
//! that it outlives the program that started it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use tweed_lab::Lab;
use tweed_lab::LabError;
use tweed_lab::{is_dying, start_time};
use tweed_lab::{line, wait_until};

/// A program by its name in a folder: `<name>.process` and `<name>.log`.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    name: &'static str,
    record: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Names the program; nothing is started.
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
            command: line(command),
            source: std::io::Error::other("it ended at once"),
        })?;
        // Whoever starts a process must collect it; a thread has the time.
        std::thread::spawn(move || child.wait());
        fs::write(&self.record, format!("{pid} {started}"))
            .map_err(|e| LabError::file("write", &self.record, e))
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Its number, as the machine outside counts; none if it has ended.
    pub(crate) fn pid(&self) -> Option<i32> {
        let (pid, started) = self.recorded()?;
        (start_time(pid) == Some(started)).then_some(pid)
    }

    /// The number and the start time that it had when it was started last.
    fn recorded(&self) -> Option<(i32, u64)> {
        let text = fs::read_to_string(&self.record).ok()?;
        let (pid, started) = text.split_once(' ')?;
        Some((pid.parse().ok()?, started.parse().ok()?))
    }

    /// Sends it a signal and waits for its end; one that has ended is no error.
    pub(crate) fn stop(&self, signal: Signal) -> Result<(), LabError> {
        if let Some(pid) = self.pid() {
            // One that ends in between is what is wanted.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        self.wait_for_end()
    }

    /// Waits for its end and for that of all its threads, at most 60 s.
    pub(crate) fn wait_for_end(&self) -> Result<(), LabError> {
        let what = format!("the end of {}", self.name);
        wait_until(&what, Duration::from_secs(60), || {
            if self.is_running() || self.recorded().is_some_and(|(pid, _)| is_dying(pid)) {
                return Err(format!("it runs on; {}", self.last_words()));
            }
            Ok(())
        })
    }

    /// The end of its log, as half a sentence with lines below it.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("{} ends with:\n{tail}", self.log.display())
    }
}
