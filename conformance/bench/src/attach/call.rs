//! Calls as a runtime makes them: fork, exec, config on stdin, answer on stdout.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A call, ready to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// The program.
    pub program: PathBuf,
    /// All of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// What it reads.
    pub stdin: serde_json::Value,
}

impl Call {
    /// Makes the call from the thread's network namespace, waits until the
    /// program has ended and both of its outputs are closed, as Go's `os/exec`
    /// does for runtimes, and gives what it wrote to stdout.
    pub fn make(&self) -> anyhow::Result<Vec<u8>> {
        let name = || self.program.display().to_string();
        let mut child = Command::new(&self.program)
            .env_clear()
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(name)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A pipe holds 64 KiB, more than any config here; a program may end
            // without having read it.
            let _ = stdin.write_all(self.stdin.to_string().as_bytes());
        }
        let output = child.wait_with_output().with_context(name)?;
        if !output.status.success() {
            bail!(
                "{} failed ({}): {}{}",
                name(),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output.stdout)
    }
}

/// The calls for one attachment, as a runtime makes them for a list of plugins:
/// one after the other, each given what the one before answered.
pub type Chain = Vec<Call>;

fn make(chain: &Chain) -> anyhow::Result<Vec<u8>> {
    let mut answer = Vec::new();
    for call in chain {
        let mut call = call.clone();
        if !answer.is_empty() {
            call.stdin["prevResult"] = serde_json::from_slice(&answer)?;
        }
        answer = call.make()?;
    }
    Ok(answer)
}

/// Calls that were made at once.
#[derive(Debug)]
pub struct Burst {
    /// From the start of the first to the end of the last.
    pub took: Duration,
    /// What the last call of each chain wrote to stdout.
    pub answers: Vec<Vec<u8>>,
}

/// Makes all chains at once, each from a thread of its own in the caller's network
/// namespace.
pub fn burst(chains: &[Chain]) -> anyhow::Result<Burst> {
    let gate = Barrier::new(chains.len());
    let timed = |chain| {
        gate.wait();
        let begin = Instant::now();
        (begin, make(chain), Instant::now())
    };
    let ended = match chains {
        [chain] => vec![timed(chain)],
        _ => std::thread::scope(|scope| {
            let threads: Vec<_> = chains
                .iter()
                .map(|chain| scope.spawn(|| timed(chain)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect()
        }),
    };
    // The caller may be woken later than the first call began.
    let first = ended.iter().map(|(begin, ..)| *begin).min();
    let last = ended.iter().map(|(.., end)| *end).max();
    let took = first.zip(last).map(|(first, last)| last - first);
    Ok(Burst {
        took: took.unwrap_or_default(),
        answers: ended
            .into_iter()
            .map(|(_, answer, _)| answer)
            .collect::<Result<_, _>>()?,
    })
}
