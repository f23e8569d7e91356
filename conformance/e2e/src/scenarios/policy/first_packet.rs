//! A container that sends as soon as it runs, before its pod has been enforced: an agent
//! that is stopped cannot enforce the policies for it, and nothing of it gets through until it has.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tweed_lab::wait_until;

use super::LIMIT;
use super::cast::Cast;
use super::paths::Path;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// What an init container prints for a connection that it could make.
const LEAKED: &str = "LEAKED";

/// What it prints at its end.
const ENDED: &str = "ENDED";

/// A policy that denies all egress of the pods with this label.
const DENIED: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: denied }
spec:
  podSelector: { matchLabels: { egress: denied } }
  policyTypes: [Egress]
";

/// Runs all steps; there is no policy before and afterwards.
pub fn run(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    open(fixture, cast).context("a pod without a policy")?;
    fixture.apply(DENIED)?;
    denied(fixture, cast).context("a pod whose egress is denied")?;
    let stopped = signal(fixture, cast, "STOP");
    let result = stopped.and_then(|()| not_enforced(fixture, cast));
    let continued = signal(fixture, cast, "CONT");
    result
        .and(continued)
        .context("a pod while the agent is stopped")?;
    enforced(fixture, cast).context("the same pod after the agent goes on")?;
    fixture.sh("delete networkpolicies --all")?;
    Ok(())
}

/// Without a policy the init container connects: one that never does would show nothing.
fn open(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    fixture.apply(&eager("open", cast).to_string())?;
    let log = log_of(fixture, "open")?;
    ensure!(
        log.contains(LEAKED),
        "the init container could not connect: {log}"
    );
    Ok(())
}

/// With a running agent, nothing that a policy denies gets through either.
fn denied(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let mut pod = eager("denied", cast);
    pod["metadata"]["labels"] = json!({ "egress": "denied" });
    fixture.apply(&pod.to_string())?;
    check_log(fixture, "denied")
}

/// No policy selects this pod: it would be open, if it had been enforced. Only its first
/// seconds are looked at: an agent that does not answer its probes is soon replaced by
/// kubelet, and the new one enforces the policies for the pod.
fn not_enforced(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    fixture.apply(&eager("not-enforced", cast).to_string())?;
    check_log(fixture, "not-enforced")?;
    fixture.log("without an agent a new pod starts and is isolated");
    Ok(())
}

fn enforced(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let pod = Endpoint::pod(&fixture.wait_ready("not-enforced", LIMIT)?)?;
    Path::web(&pod, &cast.server).becomes_open()
}

/// Waits for the end of the init container, and returns what it has printed.
fn log_of(fixture: &Fixture<'_>, name: &str) -> Result<String> {
    let log = wait_until("the end of the init container", LIMIT, || {
        let line = format!("logs {name} --container early");
        let log = fixture.sh(&line).map_err(|error| error.chain())?;
        let has_ended = log.contains(ENDED);
        has_ended.then_some(log.clone()).ok_or(log)
    });
    Ok(log?)
}

/// Checks that the init container could make no connection.
fn check_log(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    let log = log_of(fixture, name)?;
    ensure!(
        !log.contains(LEAKED),
        "the init container of {name} could connect: {log}"
    );
    Ok(())
}

/// Stops all agents of the servers' node, or lets them go on.
fn signal(fixture: &Fixture<'_>, cast: &Cast, signal: &str) -> Result<()> {
    let node = fixture.cluster.node(&cast.node)?;
    // To go on is nothing for an agent that kubelet has replaced, and no error.
    node.sh(&format!("pkill -{signal} --exact tweed-agent"))?;
    Ok(())
}

/// A pod on the servers' node whose init container connects again and again, at once.
fn eager(name: &str, cast: &Cast) -> Value {
    let mut pod = crate::pods::pod(name, &cast.node);
    let to = format!("{}:{}", cast.server.endpoint.address, cast.server.web);
    let script = format!(
        "for attempt in 1 2 3 4 5 6 7 8; do \
           /agnhost connect --timeout=500ms {to} 2>&1 && echo {LEAKED}; \
         done; echo {ENDED}"
    );
    pod["spec"]["initContainers"] = json!([{
        "name": "early",
        "image": "localhost/agnhost:lab",
        "command": ["sh", "-c", script],
    }]);
    pod
}
