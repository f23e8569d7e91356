//! Running `tweedctl` in an agent's container, over a WebSocket through the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use kube::{Api, Client, Error};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::error::{ClusterError, MissingRight};
use super::places::{Agent, CONTAINER};
use crate::answered::Unanswered;

/// The program in the agent's image.
pub const PROGRAM: &str = "tweedctl";
/// Its exit code for words that it does not know.
const BAD_USAGE: i32 = 2;

/// Bytes that are held of each stream until they are read.
const BUFFER: usize = 64 * 1024;
/// Maximum length of what the program prints.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;

/// What the program has printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// What it has printed.
    pub stdout: Vec<u8>,
    /// Why it failed, if it did.
    pub stderr: String,
}

/// Runs `tweedctl` with these words in the agent's container.
///
/// # Errors
/// The agent was not asked, or has not answered. That the program says no is none.
pub(super) async fn exec(
    client: &Client,
    agent: &Agent,
    words: &[String],
    within: Duration,
) -> Result<Output, Unanswered> {
    if let Some(why) = &agent.down {
        return Err(down(why));
    }
    let ran = timeout(within, run(client, agent, words)).await;
    ran.unwrap_or_else(|_| {
        Err(Unanswered::new(format!(
            "no answer within {} s: its node may be down, or cut off",
            within.as_secs()
        )))
    })
}

async fn run(client: &Client, agent: &Agent, words: &[String]) -> Result<Output, Unanswered> {
    let pods = Api::<Pod>::namespaced(client.clone(), &agent.namespace);
    let params = AttachParams::default()
        .container(CONTAINER)
        .max_stdout_buf_size(BUFFER)
        .max_stderr_buf_size(BUFFER);
    let arguments = words.iter().map(String::as_str);
    let program = [PROGRAM, "--run-dir", &agent.run_dir];
    let command: Vec<&str> = program.into_iter().chain(arguments).collect();
    let begun = pods.exec(&agent.pod, command, &params).await;
    let mut process = begun.map_err(|error| refusal(error, agent))?;
    let status = process.take_status();
    let (stdout, stderr) = tokio::join!(read(process.stdout()), read(process.stderr()));
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
    let code = exit_code(status.as_ref(), agent)?;
    if code == BAD_USAGE && stdout.is_empty() {
        return Err(other_version(agent));
    }
    Ok(Output {
        code,
        stdout,
        stderr,
    })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What is cut off is no JSON, and told as such.
        let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    }
    bytes
}

/// The exit code in what the kubelet says at the end.
fn exit_code(status: Option<&Status>, agent: &Agent) -> Result<i32, Unanswered> {
    let Some(status) = status else {
        let text = "the connection ended before the program did";
        return Err(Unanswered::new(text));
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status
        .details
        .iter()
        .flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = codes
        .next()
        .and_then(|cause| cause.message.as_deref()?.parse().ok());
    match code {
        Some(code) => Ok(code),
        None => Err(failure(
            status.message.as_deref().unwrap_or_default(),
            agent,
        )),
    }
}

/// Its container does not run.
fn down(why: &str) -> Unanswered {
    Unanswered::new(format!("its agent is down: {why}"))
}

/// Its image has no `tweedctl`, or one that does not know the question.
fn other_version(agent: &Agent) -> Unanswered {
    Unanswered::new(format!(
        "its agent is of another version ({}), which cannot be asked this",
        agent.version
    ))
}

/// Why the program was not even asked.
fn refusal(error: Error, agent: &Agent) -> Unanswered {
    let right = || MissingRight::exec(&agent.namespace);
    match ClusterError::of(error, "", right) {
        ClusterError::NotFound(_) => down("its pod is gone"),
        ClusterError::Answer(message) => failure(&message, agent),
        error => Unanswered::new(error.to_string()),
    }
}

/// What the message of API server, kubelet or runtime means. There are no codes for it.
fn failure(message: &str, agent: &Agent) -> Unanswered {
    let lower = message.to_lowercase();
    let says = |words: &str| lower.contains(words);
    let names_it = says(PROGRAM) || says("executable file");
    if names_it && (says("no such file") || says("not found")) {
        other_version(agent)
    } else if says("container not found") || says("container is not running") {
        down(message)
    } else if says("error dialing backend") || says("no preferred addresses") {
        Unanswered::new(format!(
            "the API server does not reach the kubelet there: {message}"
        ))
    } else {
        Unanswered::new(format!("it cannot be asked: {message}"))
    }
}
