//! Whether a file is older than the boot of this machine.
//!
//! A boot ID shows that too, but a container may read another one than its node does.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

const UPTIME: &str = "/proc/uptime";

/// Whether the file at `path` was written before this machine was started. What cannot be
/// determined, as where the clock was set back meanwhile, counts as written since.
pub fn is_older_than_boot(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|about| about.modified()).ok();
    let age = written.and_then(|written| SystemTime::now().duration_since(written).ok());
    matches!((age, uptime()), (Some(age), Some(uptime)) if age > uptime)
}

fn uptime() -> Option<Duration> {
    let text = fs::read_to_string(UPTIME).ok()?;
    let seconds = text.split_ascii_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
