//! Running a program to its end, and waiting for a state to come about.
//!
//! Programs run in process groups of their own: Ctrl-C in a terminal is for
//! the lab to handle, not for each of them to fail by.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::signals::end_here_if_leaving;

/// The command line as a person would type it.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs `command` to its end and gives its stdout.
///
/// # Errors
/// [`LabError::Start`], or [`LabError::Failed`] with all that it printed if it
/// did not exit with 0.
pub fn run(command: &mut Command) -> Result<String, LabError> {
    run_at_the_gate(command).inspect_err(|_| end_here_if_leaving())
}

/// As [`run`], for a caller that holds the gate itself and so must not wait
/// for it.
pub(crate) fn run_at_the_gate(command: &mut Command) -> Result<String, LabError> {
    let output = command
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::Start {
            command: line(command),
            source,
        })?;
    finished(command, &output)
}

/// As [`run`], with `input` on stdin.
pub fn run_with(command: &mut Command, input: &str) -> Result<String, LabError> {
    let output = exchange(command, input.as_bytes())?;
    finished(command, &output).inspect_err(|_| end_here_if_leaving())
}

/// Runs `command` with `input` on stdin, whatever way it ends.
pub(crate) fn exchange(
    command: &mut Command,
    input: &[u8],
) -> Result<std::process::Output, LabError> {
    let start = |command: &Command, source| LabError::Start {
        command: line(command),
        source,
    };
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| start(command, source))?;
    let stdin = child.stdin.take();
    // Written beside reading: a program may fill its output before it has read
    // all of its input. One that does not read to the end is no error here.
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(input)));
        child.wait_with_output()
    })
    .map_err(|source| start(command, source))
}

fn finished(command: &Command, output: &std::process::Output) -> Result<String, LabError> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Failed {
        command: line(command),
        status: output.status,
        output: format!("{stderr}{stdout}").trim().to_owned(),
    })
}

/// Calls `probe` every 20 ms until it gives a value; `Err` says what it saw
/// instead.
///
/// # Errors
/// [`LabError::TimedOut`] with `what` and the last thing seen, after `limit`.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> Result<T, LabError> {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= limit => {
                end_here_if_leaving();
                return Err(LabError::TimedOut {
                    what: what.to_owned(),
                    seconds: limit.as_secs(),
                    last,
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
