//! What programs and the kernel have used, by the kernel's accounts.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The CPU time of all threads of a process, those that have ended included.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed()))?;
    Ok(clock_gettime(clock)?.into())
}

/// The CPU time of the children of a process that it has waited for.
pub fn cpu_of_children(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).context(path.clone())?;
    // The name of the program is in brackets and may have any other character in it.
    let (_, fields) = text.rsplit_once(") ").context(path.clone())?;
    // In user mode and in the kernel: fields 16 and 17 of the line, of which two are cut off.
    let numbers = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    let ticks: u64 = numbers.sum::<Result<_, _>>().context(path)?;
    let a_second = sysconf(SysconfVar::CLK_TCK)?.context("no CLK_TCK")?;
    Ok(Duration::from_secs_f64(ticks as f64 / a_second as f64))
}

/// What a process has of memory by a line of its status, in MiB, without its children.
pub fn memory_mib(pid: u32, line: &str) -> anyhow::Result<f64> {
    mib_of(&format!("/proc/{pid}/status"), line)
}

/// What the kernel of the whole machine has in slabs that it cannot give back, in MiB:
/// elements of sets are there.
pub fn slab_mib() -> anyhow::Result<f64> {
    mib_of("/proc/meminfo", "SUnreclaim:")
}

/// A line of a file of the kernel, which has KiB.
fn mib_of(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{name} in {path}"))? / 1024.0)
}
