//! Nodes come and go while pods of the others talk to each other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Machine, NodeSpec, condition};

use super::{Begins, Scenario, Tier};
use crate::place::Place;
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::{accounts, newcomer, overlay, plugin, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "nodes",
    shows: "a node is added, rebooted, drained, deleted and made again elsewhere; others lose nothing",
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(180);

/// The error code of CNI for "try again later".
const LATER: u64 = 11;

/// The image's name while kubelet is not to find it.
const HIDDEN: &str = "localhost/tweed:hidden";

/// The pod on the node that comes and goes.
const GUEST: &str = "guest";

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let steady = steady(stage)?;
    let mut traffic = Traffic::between(&steady)?;
    if let [one, two, ..] = steady.as_slice() {
        traffic.add_stream(one, two, one.address)?;
    }
    let spec = newcomer::spec(stage)?;
    let played = play(stage, &spec, &steady, &mut traffic);
    let played = stage.witness(played);
    let restored = newcomer::send_away(stage, &spec.name);
    played.and(restored)?;
    let total = traffic.stop()?;
    stage.measure(
        &format!(
            "pings lost meanwhile, of {} between pods of other nodes",
            total.answered
        ),
        "0",
    );
    Ok(())
}

fn play(
    stage: &mut Stage<'_>,
    spec: &NodeSpec,
    steady: &[Place],
    traffic: &mut Traffic,
) -> Result<()> {
    added(stage, spec, steady).context("a node that is added")?;
    traffic.check()?;
    rebooted(stage, &spec.name, steady).context("a node that is rebooted")?;
    traffic.check()?;
    drained(stage, &spec.name, steady).context("a node that is drained")?;
    traffic.check()?;
    newcomer::send_away(stage, &spec.name).context("a node that is deleted")?;
    stage.tell("deleted: no other node knows of it any more");

    let elsewhere = newcomer::elsewhere(spec)?;
    added(stage, &elsewhere, steady).context("a Node that is made again with another address")?;
    traffic.check()?;
    if stage.tier == Tier::Full {
        // The Node stays, and with it its pod CIDR: only the address changes.
        stage.cluster.take_node_away(&spec.name)?;
        stage.sh(&format!("delete pod {GUEST} --force"))?;
        added(stage, spec, steady).context("a machine that is replaced, and its Node is not")?;
        traffic.check()?;
    }
    Ok(())
}

/// A pod on each node that is there.
fn steady(stage: &Stage<'_>) -> Result<Vec<Place>> {
    stage
        .cluster
        .nodes()
        .map(|node| pods::start(stage, &format!("steady-{}", node.name()), node.name()))
        .collect()
}

/// Adds the node and starts a pod on it.
fn added(stage: &mut Stage<'_>, spec: &NodeSpec, steady: &[Place]) -> Result<()> {
    let NodeSpec { name, address } = spec;
    stage.cluster.add_node(spec.clone())?;
    let start = Instant::now();
    stage.cluster.wait_nodes_ready()?;
    let what = format!("{name} at {address}: from its registration to Ready");
    stage.measure(&what, seconds(start));
    reach(stage, &pods::start(stage, GUEST, name)?, steady)
}

/// Reboots the node, at first without an agent: nothing starts before it is
/// there.
fn rebooted(stage: &mut Stage<'_>, name: &str, steady: &[Place]) -> Result<()> {
    let image = agent_image(stage)?;
    let boot_id = stage.cluster.node(name)?.boot_id()?;
    let hide = [image.as_str(), HIDDEN];
    rename_image(stage.cluster.node(name)?, hide)?;
    let node = stage.cluster.reboot(name)?;
    ensure!(
        node.boot_id()? != boot_id,
        "the reboot left the boot ID as it was"
    );
    let before = without_agent(stage, name).context("before the agent is there");
    rename_image(stage.cluster.node(name)?, [HIDDEN, &image])?;
    before?;
    // Its next try to get the image may be minutes away.
    let line = format!(
        "delete pod --namespace kube-system --selector app.kubernetes.io/name=tweed \
         --field-selector spec.nodeName={name} --wait=false"
    );
    stage.kubectl().sh(&line)?;
    let start = Instant::now();
    stage.cluster.wait_nodes_ready()?;
    let guest = restarted_guest(stage, name)?;
    stage.measure(
        "after a reboot: from the agent's start to the pod's",
        seconds(start),
    );
    reach(stage, &guest, steady)?;
    accounts::settle(stage).context("after the reboot")
}

/// Kubelet runs, and the pod of before the reboot is its to start: it does not,
/// and nobody else can either.
fn without_agent(stage: &Stage<'_>, name: &str) -> Result<()> {
    let told = "Ready to be False, by STATUS";
    let message = stage.kubectl().wait_for(told, LIMIT, || {
        let node = stage.kubectl().json(&format!("get node {name}"));
        let node = node.map_err(|error| error.chain())?;
        match (condition(&node, "Ready"), message_of(&node)) {
            (Some("False"), Some(message)) if message.contains("tweed") => Ok(message.to_owned()),
            _ => Err(node["status"]["conditions"].to_string()),
        }
    })?;
    stage.tell(&format!("rebooted, without an agent: {message}"));
    let node = stage.cluster.node(name)?;
    let status = plugin::status(node)?.context("STATUS says that pods are served")?;
    let added = plugin::add(node)?.context("ADD has attached a pod")?;
    ensure!(
        added["code"] == LATER,
        "ADD does not say that it should be tried again later: {added}; STATUS: {status}"
    );
    let links = node.sh("ip -brief link show group 116; ip -brief link show type vxlan")?;
    ensure!(links.trim().is_empty(), "there are links of tweed: {links}");
    // Kubelet says it when it comes to the pod, not at once.
    let told = "kubelet to say why the pod does not start";
    let line = format!("events --for pod/{GUEST} --types Warning --output json");
    stage.kubectl().wait_for(told, LIMIT, || {
        let events = stage.sh(&line).map_err(|error| error.chain())?;
        let names_it =
            events.contains("NetworkNotReady") || events.contains("FailedCreatePodSandBox");
        if names_it { Ok(()) } else { Err(events) }
    })?;
    Ok(())
}

/// Waits until the pod of before the reboot runs again, in a new sandbox.
fn restarted_guest(stage: &Stage<'_>, name: &str) -> Result<Place> {
    let node = stage.cluster.node(name)?;
    let route = wait_until("the route to the pod", LIMIT, || {
        let routes = node.sh("ip route show proto 116 scope link");
        match routes.map_err(|error| error.chain())? {
            routes if routes.trim().is_empty() => Err("there is no route to a pod".to_owned()),
            routes => Ok(routes),
        }
    })?;
    let what = format!("{GUEST} to be Ready with an address of this boot ({route})");
    let pod = stage.kubectl().wait_for(&what, LIMIT, || {
        let pod = stage.wait_ready(GUEST, LIMIT).map_err(|e| e.chain())?;
        let address = pod["status"]["podIP"].as_str().unwrap_or_default();
        let routes = node.sh(&format!("ip route show proto 116 {address}"));
        match routes.map_err(|error| error.chain())? {
            routes if routes.trim().is_empty() => Err(pod["status"].to_string()),
            _ => Ok(pod),
        }
    })?;
    Place::pod(&pod)
}

/// Drains the node: its pod is gone with all that it had, the node stays.
fn drained(stage: &Stage<'_>, name: &str, steady: &[Place]) -> Result<()> {
    stage.kubectl().sh(&format!(
        "drain {name} --force --ignore-daemonsets --grace-period=1 --timeout=120s"
    ))?;
    let node = stage.cluster.node(name)?;
    wait_until("the end of what the drained pods had", LIMIT, || {
        let left = node.sh(
            "ip route show proto 116 scope link; ip -brief link show group 116; \
             find /run/tweed/ipam -type l",
        );
        match left.map_err(|error| error.chain())? {
            left if left.trim().is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    overlay::settle(stage.cluster)?;
    for pod in steady {
        pod.ping(&Place::node(node), 3)?;
    }
    stage.tell("drained: nothing of its pods is left, and pods reach the node");
    Ok(())
}

/// The kernels are right, and packets pass there and back.
fn reach(stage: &Stage<'_>, guest: &Place, steady: &[Place]) -> Result<()> {
    overlay::settle(stage.cluster)?;
    for pod in steady {
        pod.ping(guest, 3)?;
        guest.ping(pod, 3)?;
    }
    Ok(())
}

fn agent_image(stage: &Stage<'_>) -> Result<String> {
    let agent = stage
        .kubectl()
        .json("get daemonset tweed --namespace kube-system")?;
    let image = &agent["spec"]["template"]["spec"]["containers"][0]["image"];
    Ok(image.as_str().context("the agent has no image")?.to_owned())
}

fn rename_image(node: &Machine, [from, to]: [&str; 2]) -> Result<()> {
    node.ctr(&["images", "tag", "--force", from, to])?;
    node.ctr(&["images", "remove", "--sync", from])?;
    Ok(())
}

fn message_of(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    ready["message"].as_str()
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
