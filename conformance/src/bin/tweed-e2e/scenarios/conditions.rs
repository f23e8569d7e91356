//! What a person and the scheduler are told of a node that cannot serve pods,
//! and that a node that is only full is left alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::kubernetes::{Component, condition};

use super::{Begins, Scenario, Tier};
use crate::stage::Stage;
use crate::{newcomer, plugin};

pub const SCENARIO: Scenario = Scenario {
    name: "conditions",
    shows: "a node without pod CIDR says so and mends itself; one that is full stays Ready",
    tier: Tier::Ci,
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(120);

/// Room for a few pods: of its eight addresses the node has the first.
const SMALL: &str = "10.244.200.0/29";

/// More than find room in it.
const PODS: usize = 9;

/// The reason of the condition, and of the Event.
const REASON: &str = "NoPodCidr";

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let spec = newcomer::spec(stage)?;
    stage.cluster.allocate_pod_cidrs(false)?;
    let played = stage
        .cluster
        .add_node(spec.clone())
        .map(drop)
        .map_err(Into::into)
        .and_then(|()| play(stage, &spec.name));
    let gone = newcomer::send_away(stage, &spec.name);
    let restored = stage.cluster.allocate_pod_cidrs(true);
    played.and(gone).and(restored.map_err(Into::into))
}

fn play(stage: &mut Stage<'_>, name: &str) -> Result<()> {
    unavailable(stage, name).context("a new node without a pod CIDR")?;
    let start = Instant::now();
    give(stage, name, SMALL)?;
    available(stage, name)?;
    let what = "from a pod CIDR to Ready, for a node that had none";
    stage.measure(what, format!("{:.1} s", start.elapsed().as_secs_f64()));

    full(stage, name).context("a node whose pod CIDR is full")?;

    // Now runtimes find a config there, and ask it.
    let node = stage.cluster.node(name)?;
    node.stop(Component::Kubelet, Signal::SIGKILL)?;
    stage.kubectl().sh(&format!("delete node {name}"))?;
    node.start(Component::Kubelet)?;
    let message = unavailable(stage, name).context("a Node that is made again without one")?;
    ensure!(
        message.contains("pod CIDR"),
        "kubelet does not tell of what STATUS says: {message}"
    );
    let status = plugin::status(stage.cluster.node(name)?)?;
    let status = status.context("STATUS says that pods are served")?;
    ensure!(
        status["code"] == 50 && status.to_string().contains("pod CIDR"),
        "{status}"
    );
    stage.cluster.allocate_pod_cidrs(true)?;
    available(stage, name).context("after pod CIDRs are allocated again")
}

/// Waits until the node is NotReady and says why, at all places; gives
/// kubelet's message.
fn unavailable(stage: &Stage<'_>, name: &str) -> Result<String> {
    let what = format!("{name} to be NotReady, with the reason {REASON}");
    let node = wait_node(stage, name, &what, |node| {
        let network = of_kind(node, "NetworkUnavailable");
        condition(node, "Ready") == Some("False")
            && network["status"] == "True"
            && network["reason"] == REASON
    })?;
    let said = of_kind(&node, "NetworkUnavailable")["message"].to_string();
    ensure!(said.contains("pod CIDR"), "the condition says {said}");
    let what = format!("kubectl describe node {name} to have the Event");
    stage.kubectl().wait_for(&what, LIMIT, || {
        let text = stage.kubectl().sh(&format!("describe node {name}"));
        let text = text.map_err(|error| error.chain())?;
        let (_, events) = text.split_once("Events:").ok_or("no Events")?;
        let is_told = |line: &str| line.contains("Warning") && line.contains(REASON);
        let is_told = events.lines().any(is_told);
        is_told.then_some(()).ok_or_else(|| events.to_owned())
    })?;
    stage.tell(&format!("NetworkUnavailable, Event: {said}"));
    let message = of_kind(&node, "Ready")["message"].to_string();
    stage.tell(&format!("NotReady: {message}"));
    Ok(message)
}

fn available(stage: &Stage<'_>, name: &str) -> Result<()> {
    let what = format!("{name} to be Ready, with its network");
    wait_node(stage, name, &what, |node| {
        condition(node, "Ready") == Some("True")
            && condition(node, "NetworkUnavailable") == Some("False")
    })?;
    Ok(())
}

/// More pods than addresses: those that find none wait and say why, the node
/// stays Ready, and they start when others have gone.
fn full(stage: &Stage<'_>, name: &str) -> Result<()> {
    stage.apply(&crowd(name).to_string())?;
    let wait_for_event = |what: &str, line: &str, text: &str| {
        stage.kubectl().wait_for(what, LIMIT, || {
            let events = stage.kubectl().sh(line).map_err(|error| error.chain())?;
            let is_told = events.contains(text);
            is_told.then_some(()).ok_or(events)
        })
    };
    let line = format!("get events --namespace {}", stage.namespace());
    wait_for_event(
        "a pod to tell that its range is exhausted",
        &line,
        "is exhausted",
    )?;
    let line = "get events --field-selector reason=RangeFull";
    wait_for_event("the node to tell that its range is full", line, name)?;
    let node = stage.kubectl().json(&format!("get node {name}"))?;
    ensure!(
        condition(&node, "Ready") == Some("True")
            && condition(&node, "NetworkUnavailable") == Some("False"),
        "{}",
        node["status"]["conditions"]
    );
    let status = plugin::status(stage.cluster.node(name)?)?;
    ensure!(status.is_none(), "STATUS says {status:?}");
    let words = format!(
        "pods --namespace {} --selector app=crowd",
        stage.namespace()
    );
    let started = stage.kubectl().list(&words)?;
    let is_ready = |pod: &&Value| condition(pod, "Ready") == Some("True");
    let started = started.iter().filter(is_ready).count();
    ensure!(
        (1..PODS).contains(&started),
        "{started} of {PODS} pods are Ready in {SMALL}"
    );
    stage.tell(&format!(
        "{started} of {PODS} pods have found an address in {SMALL}; the node stays Ready"
    ));
    let fits = started - 1;
    stage.sh(&format!("scale deployment crowd --replicas {fits}"))?;
    stage.wait_all_ready("app=crowd", fits, LIMIT)?;
    stage.sh(&format!("scale deployment crowd --replicas {started}"))?;
    stage.wait_all_ready("app=crowd", started, LIMIT)?;
    stage.sh("delete deployment crowd")?;
    Ok(())
}

fn crowd(node: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "crowd" },
        "spec": {
            "replicas": PODS,
            "selector": { "matchLabels": { "app": "crowd" } },
            "template": {
                "metadata": { "labels": { "app": "crowd" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "pause", "image": "localhost/agnhost:lab" }],
                },
            },
        },
    })
}

fn give(stage: &Stage<'_>, name: &str, pod_cidr: &str) -> Result<()> {
    let patch = json!({ "spec": { "podCIDR": pod_cidr, "podCIDRs": [pod_cidr] } }).to_string();
    stage
        .kubectl()
        .run(["patch", "node", name, "--patch", &patch])?;
    Ok(())
}

fn wait_node(
    stage: &Stage<'_>,
    name: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    Ok(stage.kubectl().wait_for(what, LIMIT, || {
        let node = stage.kubectl().json(&format!("get node {name}"));
        let node = node.map_err(|error| error.chain())?;
        if is_so(&node) {
            return Ok(node);
        }
        Err(node["status"]["conditions"].to_string())
    })?)
}

/// A condition of a Node, whole.
fn of_kind<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|one| one["type"] == kind))
        .unwrap_or(&Value::Null)
}
