//! The process that writes an `adding` record.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

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
            let start_time = start_time(&stat)
                .ok_or_else(|| io::Error::other(format!("not as in proc(5): {stat:?}")))?;
            Ok(Self {
                pid: std::process::id(),
                start_time,
                pid_namespace: Some(own_pid_namespace()?),
            })
        };
        read().map_err(StoreError::io("read", STAT))
    }
}

fn own_pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Field 22 of `/proc/<pid>/stat`. Field 2 is the program's name in parentheses and may hold
/// anything, parentheses included.
fn start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_hides_no_field() {
        let rest: Vec<String> = (4..30).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c) S {}", rest.join(" "));
        assert_eq!(start_time(&stat), Some(22));
        assert_eq!(start_time("17 (a) S 1"), None);
    }
}
