//! What people see of a denied connection: the answer of `tweedctl why`, asked through
//! `kubectl exec`, and the log of dropped packets in `kubectl logs`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::{Programs, wait_until};

use super::LIMIT;
use super::cast::Cast;
use super::paths::Path;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// The name of an agent's pod, on the node of this name.
pub fn agent_of(fixture: &Fixture<'_>, node: &str) -> Result<String> {
    let pods = fixture.kubectl().list(&format!(
        "pods --namespace kube-system --selector app.kubernetes.io/name=tweed \
         --field-selector spec.nodeName={node}"
    ))?;
    let name_of = |pod: &Value| pod["metadata"]["name"].as_str().map(str::to_owned);
    let found = pods.first().and_then(name_of);
    let name = found.with_context(|| format!("no agent runs on {node}"))?;
    Ok(format!("kube-system/{name}"))
}

/// While the policy `default-deny` selects the servers and allows nothing.
pub fn denied(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let agent = agent_of(fixture, &cast.node)?;
    for client in [&cast.near, &cast.far] {
        let answer = why(fixture, &agent, client, cast)?;
        let names = ["DENIED", "NetworkPolicy e2e-policy/default-deny"];
        ensure!(
            names.iter().all(|name| answer.contains(name)),
            "tweedctl why says {answer}"
        );
        let answer = both_ends(fixture, client, cast)?;
        let by = format!("node {}: ingress of the destination is DENIED", cast.node);
        ensure!(answer.contains(&by), "tweedctl says {answer}");
        let expected = format!(
            "reason=\"policy-ingress\" from=\"e2e-policy/{}\" to=\"e2e-policy/server\"",
            client.name
        );
        wait_until("a dropped packet in the agent's log", LIMIT, || {
            let log = fixture.kubectl().logs(&agent).map_err(|e| e.chain())?;
            let logged = log.lines().any(|line| {
                line.contains(&expected)
                    && line.contains("policy=\"NetworkPolicy e2e-policy/default-deny\"")
            });
            logged.then_some(()).ok_or(log)
        })?;
    }
    fixture.log("a denied connection is explained and logged, with both pods and the policy");
    Ok(())
}

/// While a policy allows the friend to reach the servers' named port: its connections to
/// that port are not in the log.
pub fn allowed(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let agent = agent_of(fixture, &cast.node)?;
    let drops = || -> Result<usize> {
        let log = fixture.kubectl().logs(&agent)?;
        let to_web = format!(":{} TCP", cast.server.web);
        let is_one = |line: &&str| {
            line.contains("to=\"e2e-policy/server\"")
                && line.contains("/friend\"")
                && line.contains(&to_web)
        };
        Ok(log.lines().filter(is_one).count())
    };
    let before = drops()?;
    let path = Path::web(&cast.friend, &cast.server);
    for _ in 0..20 {
        path.becomes_open()?;
    }
    let after = drops()?;
    ensure!(
        after == before,
        "{} allowed packets are in the log as dropped",
        after - before
    );
    let answer = why(fixture, &agent, &cast.friend, cast)?;
    ensure!(
        answer.contains("NetworkPolicy e2e-policy/from-friends") && !answer.contains("DENIED"),
        "tweedctl why says {answer}"
    );
    Ok(())
}

/// What `tweedctl` says outside of the cluster, after asking the nodes of both ends: it ends as
/// for a connection that is denied.
fn both_ends(fixture: &Fixture<'_>, client: &Endpoint, cast: &Cast) -> Result<String> {
    let program = Programs::find()?.own("tweedctl")?;
    let (from, to) = ends(fixture, client, cast);
    let mut command = fixture.kubectl().client(program);
    let output = command.args(["why", &from, &to, "--exit-code"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "it ends otherwise: {text}");
    Ok(text)
}

/// A client and the named port of the first server, as they are typed.
fn ends(fixture: &Fixture<'_>, client: &Endpoint, cast: &Cast) -> (String, String) {
    let namespace = match client.name.as_str() {
        "friend" => super::cast::FRIENDS,
        _ => fixture.namespace(),
    };
    let to = format!("{}/server:{}", fixture.namespace(), cast.server.web);
    (format!("{namespace}/{}", client.name), to)
}

/// The answer of an agent about a client and the named port of the first server.
fn why(fixture: &Fixture<'_>, agent: &str, client: &Endpoint, cast: &Cast) -> Result<String> {
    let (from, to) = ends(fixture, client, cast);
    let words = ["tweedctl", "why", &from, &to];
    Ok(fixture.kubectl().exec(agent, words)?)
}
