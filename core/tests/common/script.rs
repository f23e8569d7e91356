//! Scripts that a test writes and then runs. One piece for the tests of all crates.

use std::path::Path;
use std::process::Command;

/// Writes an executable script.
///
/// Another process writes it: if this one did, a process that another test has just
/// forked would hold a copy of the file, open for writing, until it executes its own
/// program, and the kernel would refuse to execute the script ("Text file busy").
#[track_caller]
pub fn write_script(path: &Path, text: &str) {
    let write = r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#;
    let written = Command::new("sh")
        .args(["-c", write])
        .arg(path)
        .arg(text)
        .status();
    assert!(written.is_ok_and(|status| status.success()), "{path:?}");
}
