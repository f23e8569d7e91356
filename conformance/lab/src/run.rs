//! Running a program to its end, and waiting for a state.
//!
//! Programs run in process groups of their own, so that Ctrl-C in a terminal is
//! handled by the lab alone.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::processor::Scheduled;
use crate::signals::block_if_shutting_down;

/// The command line of a command, for messages.
#[must_use]
pub fn command_line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs `command` to its end and returns its stdout.
///
/// # Errors
/// [`LabError::Start`], or [`LabError::Failed`] with its whole output if it did
/// not exit with 0.
pub fn run(command: &mut Command) -> Result<String, LabError> {
    run_holding_guard(command).inspect_err(|_| block_if_shutting_down())
}

/// As [`run`], for a caller that holds a guard of [`delay_shutdown`] or is the
/// signal handler: it must not wait for a shutdown.
///
/// [`delay_shutdown`]: crate::signals::delay_shutdown
pub(crate) fn run_holding_guard(command: &mut Command) -> Result<String, LabError> {
    let output = command
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::Start {
            command: command_line(command),
            source,
        })?;
    finished(command, &output)
}

/// As [`run`], with `input` on stdin.
///
/// # Errors
/// As [`run`].
pub fn run_with(command: &mut Command, input: &str) -> Result<String, LabError> {
    let output = exchange(command, input.as_bytes())?;
    finished(command, &output).inspect_err(|_| block_if_shutting_down())
}

/// Runs `command` with `input` on stdin; any exit status is a success.
pub(crate) fn exchange(
    command: &mut Command,
    input: &[u8],
) -> Result<std::process::Output, LabError> {
    let start = |command: &Command, source| LabError::Start {
        command: command_line(command),
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
    // Written on another thread: a program may fill its output pipe before it has
    // read all of its input. It is no error if it does not read all of it.
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
        command: command_line(command),
        status: output.status,
        output: format!("{stderr}{stdout}").trim().to_owned(),
    })
}

/// How much of its time a thread waits for a processor where the machine is starved, in
/// percent.
const STARVED: u64 = 50;

/// How often a limit begins anew on a starved machine.
const REPEATS: u32 = 2;

/// The share of the time already waited that a pause may have.
const PAUSE_SHARE: u32 = 8;

/// Maximum pause between two calls, where none was asked for.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Calls `probe` again and again until it returns a value; its `Err` describes what it
/// saw instead. The pauses grow from 10 ms with the time waited so far: many probes run
/// programs, which take processor time from what is waited for.
///
/// The limit is one for work. Where this thread mostly waited for a processor meanwhile, so did
/// what is waited for, and the limit begins anew, twice at most.
///
/// # Errors
/// [`LabError::TimedOut`] after `limit`, with `what`, the last description and how long a
/// processor was waited for.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    probe: impl FnMut() -> Result<T, String>,
) -> Result<T, LabError> {
    poll(what, limit, Duration::from_millis(10), probe)
}

/// As [`wait_until`], with another shortest pause between two calls.
///
/// # Errors
/// As [`wait_until`].
pub fn poll<T>(
    what: &str,
    limit: Duration,
    shortest_pause: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> Result<T, LabError> {
    let scheduled = Scheduled::now();
    let start = Instant::now();
    let mut allowed = limit;
    loop {
        let last = match probe() {
            Ok(value) => return Ok(value),
            Err(last) => last,
        };
        if start.elapsed() < allowed {
            let pause = (start.elapsed() / PAUSE_SHARE).min(LONGEST_PAUSE);
            std::thread::sleep(pause.max(shortest_pause));
            continue;
        }
        let waited = Scheduled::now().waited_since(scheduled);
        if waited >= STARVED && allowed <= limit * REPEATS {
            allowed += limit;
            continue;
        }
        block_if_shutting_down();
        return Err(LabError::TimedOut {
            what: what.to_owned(),
            seconds: allowed.as_secs(),
            last: format!(
                "{last}; {waited} % of the time in which this could run it waited for a processor"
            ),
        });
    }
}
