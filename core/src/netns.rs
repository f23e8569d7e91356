//! Which network namespace a process works in.

use std::os::unix::fs::MetadataExt as _;
use std::{fs, io};

/// The calling thread's network namespace: the inode of `/proc/thread-self/ns/net`,
/// unique while the namespace exists.
///
/// # Errors
/// When `/proc` is not mounted, or cannot be read.
pub fn own() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}
