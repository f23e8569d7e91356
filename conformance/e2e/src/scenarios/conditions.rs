//! A node without a pod CIDR reports so in conditions, Event and STATUS, and recovers
//! when it gets one. A node whose pod CIDR is full stays Ready.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab_kubernetes::{Component, condition};

use super::{Precondition, Scenario};
use crate::fixture::Fixture;
use crate::{extra_node, plugin, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "conditions",
    shows: "a node without pod CIDR reports it and recovers; a node that is full stays Ready",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// A pod CIDR of eight addresses.
const SMALL: &str = "10.244.200.0/29";

/// Number of pods that get an address of [`SMALL`]. The first address is the node's,
/// the second is reserved for the gateway that other main plugins need, and the last is
/// not used.
const ROOM: usize = 5;

/// Number of pods, more than get an address.
const PODS: usize = 8;

/// The reason of the condition, and of the Event.
const REASON: &str = "NoPodCidr";

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let spec = extra_node::unused_spec(fixture)?;
    fixture.cluster.allocate_pod_cidrs(false)?;
    let result = fixture
        .cluster
        .add_node(spec.clone())
        .map(drop)
        .map_err(Into::into)
        .and_then(|()| run_steps(fixture, &spec.name));
    let result = fixture.report_failure(result);
    let removed = extra_node::remove(fixture, &spec.name);
    // The last step does so itself. A controller manager that starts delays what follows.
    let restored = match result {
        Ok(()) => Ok(()),
        Err(_) => fixture.cluster.allocate_pod_cidrs(true),
    };
    result.and(removed).and(restored.map_err(Into::into))
}

fn run_steps(fixture: &mut Fixture<'_>, name: &str) -> Result<()> {
    unavailable(fixture, name).context("a new node without a pod CIDR")?;
    let start = Instant::now();
    give(fixture, name, SMALL)?;
    available(fixture, name)?;
    let what = "from a pod CIDR to Ready, for a node that had none";
    fixture.measure_time(what, start.elapsed());

    full(fixture, name).context("a node whose pod CIDR is full")?;

    // From now on the runtime has a config and calls STATUS.
    let node = fixture.cluster.node(name)?;
    node.stop(Component::Kubelet, Signal::SIGKILL)?;
    fixture.kubectl().sh(&format!("delete node {name}"))?;
    node.start(Component::Kubelet)?;
    let message = unavailable(fixture, name).context("a Node that is created again without one")?;
    ensure!(
        message.contains("pod CIDR"),
        "kubelet does not report the error of STATUS: {message}"
    );
    let refused = plugin::status(fixture.cluster.node(name)?)?;
    let status = refused.context("STATUS says that pods are served")?;
    ensure!(
        status["code"] == 50 && status.to_string().contains("pod CIDR"),
        "{status}"
    );
    fixture.cluster.allocate_pod_cidrs(true)?;
    available(fixture, name).context("after pod CIDRs are allocated again")
}

/// Waits until the node is NotReady and reports the reason in condition and Event.
/// Returns kubelet's message.
fn unavailable(fixture: &Fixture<'_>, name: &str) -> Result<String> {
    let what = format!("{name} to be NotReady, with the reason {REASON}");
    let node = wait_node(fixture, name, &what, |node| {
        let network = of_kind(node, "NetworkUnavailable");
        condition(node, "Ready") == Some("False")
            && network["status"] == "True"
            && network["reason"] == REASON
    })?;
    let said = of_kind(&node, "NetworkUnavailable")["message"].to_string();
    ensure!(said.contains("pod CIDR"), "the condition says {said}");
    wait_event(fixture, &node, REASON)?;
    let described = fixture.kubectl().sh(&format!("describe node {name}"))?;
    let names_reason = |line: &str| line.contains("Warning") && line.contains(REASON);
    ensure!(
        described.lines().any(names_reason),
        "kubectl describe does not show the reason: {described}"
    );
    fixture.log(&format!("NetworkUnavailable, Event: {said}"));
    let message = of_kind(&node, "Ready")["message"].to_string();
    fixture.log(&format!("NotReady: {message}"));
    Ok(message)
}

/// Waits for an Event about this Node, and not about another one of the same name.
fn wait_event(fixture: &Fixture<'_>, node: &Value, reason: &str) -> Result<()> {
    let uid = node["metadata"]["uid"]
        .as_str()
        .context("a Node without UID")?;
    let line = format!(
        "get events --field-selector type=Warning,reason={reason},involvedObject.uid={uid}"
    );
    fixture
        .kubectl()
        .wait_for(&format!("the Event {reason}"), LIMIT, || {
            let events = fixture.kubectl().sh(&line).map_err(|error| error.chain())?;
            let names_reason = events.contains(reason);
            names_reason.then_some(()).ok_or(events)
        })?;
    Ok(())
}

fn available(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    let what = format!("{name} to be Ready, with its network");
    wait_node(fixture, name, &what, |node| {
        condition(node, "Ready") == Some("True")
            && condition(node, "NetworkUnavailable") == Some("False")
    })?;
    Ok(())
}

/// More pods than addresses: pods without an address wait and have the reason in an
/// Event, the node stays Ready, and they start after others have been deleted.
fn full(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    let place = ("nodeSelector", json!({ "kubernetes.io/hostname": name }));
    fixture.apply(&pods::deployment("crowd", PODS, place).to_string())?;
    let namespace = fixture.namespace();
    let what = format!(
        "{ROOM} of {PODS} pods to be Ready in {SMALL}, and the others to have the reason in an Event"
    );
    fixture.kubectl().wait_for(&what, LIMIT, || {
        let list = |what: String| fixture.kubectl().list(&what).map_err(|error| error.chain());
        let pods = list(format!("pods --namespace {namespace}"))?;
        let is_ready = |pod: &&Value| condition(pod, "Ready") == Some("True");
        let ready = pods.iter().filter(is_ready).count();
        let events = list(format!(
            "events --namespace {namespace} --field-selector reason=FailedCreatePodSandBox"
        ))?;
        let names_reason = |event: &Value| event["message"].to_string().contains("is exhausted");
        if ready == ROOM && events.iter().any(names_reason) {
            return Ok(());
        }
        Err(format!("{ready} are Ready; {}", json!(events)))
    })?;
    let node = fixture.kubectl().json(&format!("get node {name}"))?;
    wait_event(fixture, &node, "RangeFull")?;
    let node = fixture.kubectl().json(&format!("get node {name}"))?;
    ensure!(
        condition(&node, "Ready") == Some("True")
            && condition(&node, "NetworkUnavailable") == Some("False"),
        "{}",
        node["status"]["conditions"]
    );
    let status = plugin::status(fixture.cluster.node(name)?)?;
    ensure!(status.is_none(), "STATUS says {status:?}");
    fixture.log(&format!(
        "{ROOM} of {PODS} pods have an address of {SMALL}; the node stays Ready"
    ));
    // Other pods get the addresses of deleted ones.
    fixture.sh(&format!("scale deployment crowd --replicas {ROOM}"))?;
    fixture.sh("delete pods --selector app=crowd --wait=false")?;
    fixture.wait_all_ready("app=crowd", ROOM, LIMIT)?;
    fixture.sh("scale deployment crowd --replicas 0")?;
    fixture.wait_all_ready("app=crowd", 0, LIMIT)?;
    Ok(())
}

fn give(fixture: &Fixture<'_>, name: &str, pod_cidr: &str) -> Result<()> {
    let patch = json!({ "spec": { "podCIDR": pod_cidr, "podCIDRs": [pod_cidr] } }).to_string();
    fixture
        .kubectl()
        .run(["patch", "node", name, "--patch", &patch])?;
    Ok(())
}

fn wait_node(
    fixture: &Fixture<'_>,
    name: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    Ok(fixture.kubectl().wait_for(what, LIMIT, || {
        let line = format!("get node {name}");
        let node = fixture.kubectl().json(&line).map_err(|e| e.chain())?;
        if is_so(&node) {
            return Ok(node);
        }
        Err(node["status"]["conditions"].to_string())
    })?)
}

/// A condition of a Node with all of its fields.
fn of_kind<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|one| one["type"] == kind))
        .unwrap_or(&Value::Null)
}
