//! What the kernel counted for a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// A running process.
#[derive(Debug, Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// The process of this number.
    pub fn of(pid: u32) -> Self {
        Self(pid)
    }

    /// The most memory that it ever had resident, in MiB (`VmHWM`).
    pub fn peak_mib(self) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/status", self.0);
        let status = fs::read_to_string(&path).with_context(|| path.clone())?;
        Ok(field(&status, "VmHWM:").with_context(|| path)? as f64 / 1024.0)
    }

    /// The CPU time of all its threads, those that have ended included.
    pub fn cpu(self) -> anyhow::Result<Duration> {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(self.0.cast_signed()))?;
        Ok(clock_gettime(clock)?.into())
    }

    /// How often its threads went to sleep by themselves, which is how often
    /// they were woken.
    pub fn wakes(self) -> anyhow::Result<u64> {
        let tasks = format!("/proc/{}/task", self.0);
        let mut wakes = 0;
        for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
            let path = task?.path().join("status");
            // A thread may end meanwhile.
            let Ok(status) = fs::read_to_string(&path) else {
                continue;
            };
            wakes += field(&status, "voluntary_ctxt_switches:").unwrap_or_default();
        }
        if wakes == 0 {
            bail!("no thread in {tasks}");
        }
        Ok(wakes)
    }
}

fn field(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
