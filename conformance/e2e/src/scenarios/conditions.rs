//! What a person and the scheduler are told of a node that cannot serve pods,
//! and that a node that is only full is left alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab_kubernetes::{Component, condition};

use super::{Begins, Scenario};
use crate::stage::Stage;
use crate::{newcomer, plugin};

pub const SCENARIO: Scenario = Scenario {
    name: "conditions",
    shows: "a node without pod CIDR says so and mends itself; one that is full stays Ready",
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(120);

/// Eight addresses, of which the node has the first; the gateway's, which other
/// main plugins would need, and the last are no pod's either.
const SMALL: &str = "10.244.200.0/29";
const ROOM: usize = 5;

/// More than find room in it.
const PODS: usize = 8;

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
    let played = stage.witness(played);
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
    wait_event(stage, &node, REASON)?;
    let described = stage.kubectl().sh(&format!("describe node {name}"))?;
    let is_told = |line: &str| line.contains("Warning") && line.contains(REASON);
    ensure!(
        described.lines().any(is_told),
        "kubectl describe does not tell why: {described}"
    );
    stage.tell(&format!("NetworkUnavailable, Event: {said}"));
    let message = of_kind(&node, "Ready")["message"].to_string();
    stage.tell(&format!("NotReady: {message}"));
    Ok(message)
}

/// Waits until the agent has told this Node of it, not one of the same name.
fn wait_event(stage: &Stage<'_>, node: &Value, reason: &str) -> Result<()> {
    let uid = node["metadata"]["uid"]
        .as_str()
        .context("a Node without UID")?;
    let line = format!(
        "get events --field-selector type=Warning,reason={reason},involvedObject.uid={uid}"
    );
    stage
        .kubectl()
        .wait_for(&format!("the Event {reason}"), LIMIT, || {
            let events = stage.kubectl().sh(&line).map_err(|error| error.chain())?;
            let is_told = events.contains(reason);
            is_told.then_some(()).ok_or(events)
        })?;
    Ok(())
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
    let namespace = stage.namespace();
    let what = format!("{ROOM} of {PODS} pods to be Ready in {SMALL}, and the others to say why");
    stage.kubectl().wait_for(&what, LIMIT, || {
        let list = |what: String| stage.kubectl().list(&what).map_err(|error| error.chain());
        let pods = list(format!("pods --namespace {namespace}"))?;
        let is_ready = |pod: &&Value| condition(pod, "Ready") == Some("True");
        let ready = pods.iter().filter(is_ready).count();
        let events = list(format!(
            "events --namespace {namespace} --field-selector reason=FailedCreatePodSandBox"
        ))?;
        let is_told = |event: &Value| event["message"].to_string().contains("is exhausted");
        if ready == ROOM && events.iter().any(is_told) {
            return Ok(());
        }
        Err(format!("{ready} are Ready; {}", json!(events)))
    })?;
    let node = stage.kubectl().json(&format!("get node {name}"))?;
    wait_event(stage, &node, "RangeFull")?;
    let node = stage.kubectl().json(&format!("get node {name}"))?;
    ensure!(
        condition(&node, "Ready") == Some("True")
            && condition(&node, "NetworkUnavailable") == Some("False"),
        "{}",
        node["status"]["conditions"]
    );
    let status = plugin::status(stage.cluster.node(name)?)?;
    ensure!(status.is_none(), "STATUS says {status:?}");
    stage.tell(&format!(
        "{ROOM} of {PODS} pods have found an address in {SMALL}; the node stays Ready"
    ));
    // Their addresses are others' when they have gone.
    stage.sh(&format!("scale deployment crowd --replicas {ROOM}"))?;
    stage.sh("delete pods --selector app=crowd --wait=false")?;
    stage.wait_all_ready("app=crowd", ROOM, LIMIT)?;
    stage.sh("scale deployment crowd --replicas 0")?;
    stage.wait_all_ready("app=crowd", 0, LIMIT)?;
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
