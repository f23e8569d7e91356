//! Whether the process that wrote an `adding` record has ended.
//!
//! The answer decides whether an address is freed, so only proof counts: a process
//! whose state cannot be determined counts as alive.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

use crate::{record::Process, store::StoreError};

impl Process {
    /// The calling process: its number, start time and PID namespace.
    ///
    /// # Errors
    /// [`StoreError::Io`] when `/proc` is not mounted, or cannot be read.
    pub fn current() -> Result<Self, StoreError> {
        const STAT: &str = "/proc/self/stat";
        let read = || {
            // The kernel returns it in one read; it has some 300 bytes.
            let mut stat = [0; 1024];
            let length = File::open(STAT)?.read(&mut stat)?;
            let stat = String::from_utf8_lossy(stat.get(..length).unwrap_or_default());
            let (_, start_time) = parse_stat(&stat)
                .ok_or_else(|| io::Error::other(format!("not as in proc(5): {stat:?}")))?;
            Ok(Self {
                pid: std::process::id(),
                start_time,
                pid_namespace: Some(own_pid_namespace()?),
            })
        };
        read().map_err(StoreError::io("read", STAT))
    }

    /// Whether it is certain that the process has ended.
    #[must_use]
    pub fn is_provably_gone(&self) -> bool {
        if self.pid_namespace.is_none() || self.pid_namespace != own_pid_namespace().ok() {
            return false;
        }
        // Zero and negative numbers address groups of processes, kill(2).
        let Some(pid) = i32::try_from(self.pid).ok().filter(|pid| *pid > 0) else {
            return false;
        };
        if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
            return true;
        }
        match fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .as_deref()
            .and_then(parse_stat)
        {
            Some((state, start_time)) => {
                // A zombie has released everything but its number.
                matches!(state, 'Z' | 'X') || start_time != self.start_time
            }
            None => false,
        }
    }
}

fn own_pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Fields 3 (state) and 22 (start time) of `/proc/<pid>/stat`. Field 2 is the
/// program's name in parentheses and may hold anything, parentheses included.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    Some((state, start_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_is_not_gone() {
        assert!(!Process::current().unwrap().is_provably_gone());
    }

    #[test]
    fn a_later_process_with_the_same_number_is_another() {
        let mut process = Process::current().unwrap();
        process.start_time += 1;
        assert!(process.is_provably_gone());
    }

    #[test]
    fn a_child_is_gone_when_it_is_a_zombie_and_when_it_is_reaped() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let process = Process {
            pid: child.id(),
            start_time: parse_stat(&stat).unwrap().1,
            pid_namespace: Some(own_pid_namespace().unwrap()),
        };
        assert!(!process.is_provably_gone());
        child.kill().unwrap();
        while !fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .unwrap()
            .contains(") Z")
        {
            std::thread::yield_now();
        }
        assert!(process.is_provably_gone());
        child.wait().unwrap();
        assert!(process.is_provably_gone());
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_never_taken_for_gone() {
        for pid_namespace in [None, Some(1)] {
            let process = Process {
                pid: 0x3fff_ffff,
                start_time: 1,
                pid_namespace,
            };
            assert!(!process.is_provably_gone());
        }
    }

    #[test]
    fn a_program_may_be_named_anything() {
        let fields = (4..=22).map(|n| n.to_string()).collect::<Vec<_>>();
        let stat = format!("7 (a) R (b) S {}", fields.join(" "));
        assert_eq!(parse_stat(&stat), Some(('S', 22)));
        assert_eq!(parse_stat("7 (cut off"), None);
        assert_eq!(parse_stat("7 (cut) S 1 2"), None);
    }
}
