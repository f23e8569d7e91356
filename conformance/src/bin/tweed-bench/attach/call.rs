//! Calls as a runtime makes them: fork, exec, config on stdin, answer on stdout.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// A call, ready to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; plugins have none.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// What it reads.
    pub stdin: Vec<u8>,
}

impl Call {
    /// Makes the call from the thread's network namespace, waits until the
    /// program has ended and both of its outputs are closed, as Go's
    /// `os/exec` does for runtimes, and gives what it wrote to stdout.
    pub fn make(&self) -> anyhow::Result<Vec<u8>> {
        let what = || self.program.display().to_string();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(what)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A pipe holds 64 KiB: no config of the bench fills one. A program
            // that does not read it is none the worse for it.
            let _ = stdin.write_all(&self.stdin);
        }
        let output = child.wait_with_output().with_context(what)?;
        if !output.status.success() {
            bail!(
                "{} failed ({}): {}{}",
                what(),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output.stdout)
    }

    /// The call with what another one answered as its `prevResult`.
    fn after(&self, answer: &[u8]) -> anyhow::Result<Self> {
        let mut config: Value = serde_json::from_slice(&self.stdin)?;
        config["prevResult"] = serde_json::from_slice(answer)?;
        Ok(Self {
            stdin: config.to_string().into_bytes(),
            ..self.clone()
        })
    }
}

/// The calls for one attachment, as a runtime makes them for a list of plugins:
/// one after the other, each given what the one before has answered.
#[derive(Debug, Clone)]
pub struct Chain(pub Vec<Call>);

impl Chain {
    /// Makes the calls, and gives the last one's answer.
    fn make(&self) -> anyhow::Result<Vec<u8>> {
        let mut answer = Vec::new();
        for call in &self.0 {
            answer = if answer.is_empty() {
                call.make()?
            } else {
                call.after(&answer)?.make()?
            };
        }
        Ok(answer)
    }
}

/// What all of several calls came to.
#[derive(Debug)]
pub struct Burst {
    /// From the start of the first to the end of the last.
    pub took: Duration,
    /// What each wrote to stdout.
    pub answers: Vec<Vec<u8>>,
}

/// Makes all chains at once, each from a thread of its own in the caller's
/// network namespace.
pub fn burst(chains: &[Chain]) -> anyhow::Result<Burst> {
    if let [chain] = chains {
        let start = Instant::now();
        let answer = chain.make()?;
        return Ok(Burst {
            took: start.elapsed(),
            answers: vec![answer],
        });
    }
    let gate = Barrier::new(chains.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = chains
            .iter()
            .map(|chain| {
                let gate = &gate;
                scope.spawn(move || {
                    gate.wait();
                    let begin = Instant::now();
                    (begin, chain.make(), Instant::now())
                })
            })
            .collect();
        let mut answers = Vec::with_capacity(chains.len());
        let mut times = Vec::with_capacity(chains.len());
        for thread in threads {
            match thread.join() {
                Ok((begin, answer, end)) => {
                    answers.push(answer?);
                    times.push((begin, end));
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Whoever waits for the threads may be woken after the first has begun.
        let first = times.iter().map(|(begin, _)| *begin).min();
        let last = times.iter().map(|(_, end)| *end).max();
        let took = first.zip(last).map(|(first, last)| last - first);
        Ok(Burst {
            took: took.unwrap_or_default(),
            answers,
        })
    })
}
