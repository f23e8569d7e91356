//! What `tweedctl` says of a cluster in order, and of one in which a right, an agent or a node
//! is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tweed_lab::Programs;
use tweed_lab_kubernetes::condition;

use super::{Precondition, Scenario};
use crate::fixture::Fixture;
use crate::{agents, extra_node};

pub const SCENARIO: Scenario = Scenario {
    name: "tweedctl",
    shows: "tweedctl says how each node is, also where a right, an agent or a node is missing",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(180);
/// How long a kubelet may be silent until its Node is no longer Ready, in place of
/// Kubernetes' default of 50 s. The lab's kubelets say something every 4 s.
const NODE_GRACE: Duration = Duration::from_secs(15);
/// The rights of people who use it.
const RIGHTS: &str = "install/tweedctl-user.yaml";
/// The name of the agent's image while kubelet must not find it.
const HIDDEN: &str = "localhost/tweed:hidden";

/// Exit codes.
const FINE: i32 = 0;
const FINDINGS: i32 = 1;
const UNDETERMINED: i32 = 4;

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    in_order(fixture, &folder).context("a cluster in order")?;
    rights(fixture, &folder).context("without the rights, and with them")?;
    let worker = fixture.first_worker()?;
    let without_agent = without_agent(fixture, &worker, &folder).context("an agent that is down");
    let without_agent = fixture.report_failure(without_agent);
    agents::show_image(fixture, &worker, HIDDEN)?;
    agents::restart(fixture)?;
    without_agent?;
    let spec = extra_node::unused_spec(fixture)?;
    fixture.cluster.add_node(spec.clone())?;
    let gone = node_gone(fixture, &spec.name).context("a node that is gone");
    let gone = fixture.report_failure(gone);
    let restored = fixture.cluster.set_node_grace(None);
    let removed = extra_node::remove(fixture, &spec.name);
    gone.and(restored.map_err(Into::into)).and(removed)
}

/// What it has printed.
struct Told {
    code: Option<i32>,
    text: String,
}

/// Asks the cluster.
fn tweedctl<const N: usize>(fixture: &Fixture<'_>, words: [&str; N]) -> Result<Told> {
    let program = Programs::find()?.own("tweedctl")?;
    let output = fixture.kubectl().client(program).args(words).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok(Told {
        code: output.status.code(),
        text,
    })
}

/// The same as JSON: what it says of each node.
fn nodes<const N: usize>(fixture: &Fixture<'_>, words: [&str; N]) -> Result<(Option<i32>, Value)> {
    let answer = tweedctl(fixture, words)?;
    let mut document: Value =
        serde_json::from_str(&answer.text).with_context(|| format!("no JSON: {}", answer.text))?;
    Ok((answer.code, document["nodes"].take()))
}

fn in_order(fixture: &mut Fixture<'_>, folder: &TempDir) -> Result<()> {
    // The scenario before may have taken a node away, which others miss for a moment.
    let what = "status to find nothing wrong";
    fixture.kubectl().wait_for(what, LIMIT, || {
        let answer = tweedctl(fixture, ["status"]).map_err(|error| format!("{error:#}"))?;
        if answer.code == Some(FINE) {
            Ok(())
        } else {
            Err(format!("it ends with {:?}: {}", answer.code, answer.text))
        }
    })?;
    let start = Instant::now();
    let (code, answer) = nodes(fixture, ["status", "-o", "json"])?;
    let took = start.elapsed();
    ensure!(code == Some(FINE), "status ends with {code:?}: {answer:#}");
    let names = answer
        .as_object()
        .context("no nodes")?
        .keys()
        .map(String::as_str);
    let expected = fixture.cluster.nodes().map(|node| node.name());
    ensure!(
        names.collect::<BTreeSet<_>>() == expected.collect::<BTreeSet<_>>(),
        "status names other nodes: {answer:#}"
    );
    fixture.measure_time("status of all nodes", took);

    let answer = tweedctl(fixture, ["status"])?;
    let ready = answer
        .text
        .lines()
        .filter(|line| line.contains(" yes "))
        .count();
    ensure!(
        ready == fixture.cluster.nodes().count(),
        "not each node is a line: {}",
        answer.text
    );
    let (code, answer) = nodes(fixture, ["doctor", "-o", "json"])?;
    ensure!(
        matches!(code, Some(FINE | FINDINGS)),
        "doctor ends with {code:?}: {answer:#}"
    );
    for node in fixture.cluster.nodes() {
        let findings = &answer[node.name()]["doctor"]["findings"];
        ensure!(
            findings.as_array().is_some_and(|all| !all.is_empty()),
            "doctor says nothing of {}: {answer:#}",
            node.name()
        );
    }
    let svg = folder.path().join("network.svg");
    tweedctl(fixture, ["graph", "--file", text(&svg)?])?;
    let svg = fs::read_to_string(svg)?;
    for node in fixture.cluster.nodes() {
        ensure!(svg.contains(node.name()), "{} is not drawn", node.name());
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// A kubeconfig that acts as the namespace's service account.
fn kubeconfig(fixture: &Fixture<'_>, folder: &TempDir) -> Result<PathBuf> {
    let mut config = fixture
        .kubectl()
        .json("config view --raw --minify --flatten")?;
    let account = format!("system:serviceaccount:{}:default", fixture.namespace());
    config["users"][0]["user"]["as"] = account.into();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// An account without rights is told which one is missing, one after the other.
fn rights(fixture: &mut Fixture<'_>, folder: &TempDir) -> Result<()> {
    let path = kubeconfig(fixture, folder)?;
    let shown = rights_steps(fixture, text(&path)?);
    let shown = fixture.report_failure(shown);
    fixture
        .kubectl()
        .sh("delete rolebinding,role --namespace kube-system --ignore-not-found tweedctl reader")?;
    fixture
        .kubectl()
        .sh("delete clusterrolebinding,clusterrole --ignore-not-found tweedctl")?;
    shown
}

fn rights_steps(fixture: &Fixture<'_>, kubeconfig: &str) -> Result<()> {
    // The API server hears of rights a moment after they are written.
    let wait_until = |code: i32, phrase: &str| {
        let what = format!("status to end with {code} and to say {phrase:?}");
        fixture.kubectl().wait_for(&what, LIMIT, || {
            let ended = tweedctl(fixture, ["status", "--kubeconfig", kubeconfig]);
            let answer = ended.map_err(|error| format!("{error:#}"))?;
            if answer.code == Some(code) && answer.text.contains(phrase) {
                Ok(())
            } else {
                Err(format!("it ends with {:?}: {}", answer.code, answer.text))
            }
        })
    };
    wait_until(UNDETERMINED, "the right to list nodes in the whole cluster")?;

    let manifest = fs::read_to_string(Programs::find()?.source().join(RIGHTS))?;
    fixture.kubectl().apply(&manifest)?;
    let account = format!("--serviceaccount {}:default", fixture.namespace());
    let bind = |what: &str| fixture.kubectl().sh(&format!("create {what} {account}"));
    bind("clusterrolebinding tweedctl --clusterrole tweedctl")?;
    bind("rolebinding tweedctl --namespace kube-system --role tweedctl")?;
    wait_until(FINE, " yes ")?;

    // Whoever may read pods need not be allowed to run programs in them.
    let kubectl = fixture.kubectl();
    kubectl.sh("create role reader --namespace kube-system --verb get,list --resource pods")?;
    kubectl.sh("delete rolebinding tweedctl --namespace kube-system")?;
    bind("rolebinding reader --namespace kube-system --role reader")?;
    wait_until(
        UNDETERMINED,
        "the right to get and, from Kubernetes 1.35 on, create pods/exec in namespace kube-system",
    )?;
    Ok(())
}

/// One agent is down: the other nodes answer, and a bundle has its part of everything else.
fn without_agent(fixture: &Fixture<'_>, worker: &str, folder: &TempDir) -> Result<()> {
    agents::hide_image(fixture, worker, HIDDEN)?;
    fixture.kubectl().sh(&format!(
        "delete pod --namespace kube-system --selector app.kubernetes.io/name=tweed \
         --field-selector spec.nodeName={worker}"
    ))?;
    let answer = fixture
        .kubectl()
        .wait_for("the agent to be down", LIMIT, || {
            let answer =
                nodes(fixture, ["status", "-o", "json"]).map_err(|error| format!("{error:#}"));
            let (code, answer) = answer?;
            let error = answer[worker]["error"].as_str().unwrap_or_default();
            if code == Some(UNDETERMINED) && error.contains("agent is down") {
                Ok(answer)
            } else {
                Err(format!("{code:?}: {answer:#}"))
            }
        })?;
    for node in fixture.cluster.nodes().filter(|node| node.name() != worker) {
        ensure!(
            answer[node.name()]["status"]["ready"] == true,
            "{} is not ready beside it: {answer:#}",
            node.name()
        );
    }
    let path = folder.path().join("bundle.tar.zst");
    let answer = tweedctl(fixture, ["bundle", "--file", text(&path)?])?;
    ensure!(
        answer.code == Some(UNDETERMINED),
        "bundle ends with {:?}: {}",
        answer.code,
        answer.text
    );
    let archive = fs::read(&path)?;
    ensure!(
        archive.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) && archive.len() > 10_000,
        "the bundle of {} bytes is no archive: {}",
        archive.len(),
        answer.text
    );
    Ok(())
}

/// A node's machine is destroyed under its Node: the others answer all the same.
fn node_gone(fixture: &mut Fixture<'_>, name: &str) -> Result<()> {
    fixture.cluster.wait_nodes_ready()?;
    agents::wait_rolled_out(fixture)?;
    fixture.cluster.destroy_machine(name)?;
    fixture.cluster.set_node_grace(Some(NODE_GRACE))?;
    let what = "the Node to be no longer Ready";
    fixture.kubectl().wait_for(what, LIMIT, || {
        let line = format!("get node {name}");
        let node = fixture.kubectl().json(&line).map_err(|e| e.chain())?;
        match condition(&node, "Ready") {
            Some("True") => Err(node["status"]["conditions"].to_string()),
            _ => Ok(()),
        }
    })?;
    // Until the others know that, they find that it does not answer.
    let what = "status to say nothing but that the node cannot be asked";
    let (answer, took) = fixture.kubectl().wait_for(what, LIMIT, || {
        let start = Instant::now();
        let asked = nodes(fixture, ["status", "-o", "json"]);
        let (code, answer) = asked.map_err(|error| format!("{error:#}"))?;
        if code == Some(UNDETERMINED) && answer[name]["error"].is_string() {
            Ok((answer, start.elapsed()))
        } else {
            Err(format!("status ends with {code:?}: {answer:#}"))
        }
    })?;
    for node in fixture.cluster.nodes().filter(|node| node.name() != name) {
        ensure!(
            answer[node.name()]["status"]["ready"] == true,
            "{} is not ready beside it: {answer:#}",
            node.name()
        );
    }
    fixture.log(&format!(
        "of the node that is gone: {}",
        answer[name]["error"]
    ));
    fixture.measure_time("status with a node that is gone", took);
    Ok(())
}
