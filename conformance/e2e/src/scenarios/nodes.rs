//! A node is added, rebooted, drained, deleted and replaced while pods of other nodes ping each other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{NodeSpec, condition};

use super::{Precondition, Scenario, Tier};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::traffic::Traffic;
use crate::{agents, consistency, extra_node, overlay, plugin, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "nodes",
    shows: "a node is added, rebooted, drained, deleted, created again and replaced; pods of others lose nothing",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(180);

/// The error code of CNI for "try again later".
const TRY_AGAIN_LATER: u64 = 11;

/// The name of the agent's image while kubelet must not find it.
const HIDDEN: &str = "localhost/tweed:hidden";

/// The pod on the added node.
const GUEST: &str = "guest";

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let steady = pods::start_on_all(fixture, "steady")?;
    let mut traffic = Traffic::between(&steady)?;
    if let [one, two, ..] = steady.as_slice() {
        traffic.add_stream(one, two, one.address)?;
    }
    let spec = extra_node::unused_spec(fixture)?;
    let result = run_steps(fixture, &spec, &steady, &mut traffic);
    let result = fixture.report_failure(result);
    let restored = extra_node::remove(fixture, &spec.name);
    result.and(restored)?;
    let total = traffic.stop()?;
    fixture.measure(
        &format!(
            "pings lost meanwhile, of {} between pods of other nodes",
            total.answered
        ),
        "0",
    );
    Ok(())
}

fn run_steps(
    fixture: &mut Fixture<'_>,
    spec: &NodeSpec,
    steady: &[Endpoint],
    traffic: &mut Traffic,
) -> Result<()> {
    add_node(fixture, spec, steady).context("a node that is added")?;
    traffic.check()?;
    reboot_node(fixture, &spec.name, steady).context("a node that is rebooted")?;
    traffic.check()?;
    drain_node(fixture, &spec.name, steady).context("a node that is drained")?;
    traffic.check()?;
    extra_node::remove(fixture, &spec.name).context("a node that is deleted")?;
    fixture.log("deleted: no other node has a route to it");

    let elsewhere = extra_node::with_other_address(spec)?;
    add_node(fixture, &elsewhere, steady)
        .context("a Node that is created again with another address")?;
    traffic.check()?;
    // The Node object stays with its pod CIDR. The others know the MAC of the machine
    // before at this address.
    replace_machine(fixture, &elsewhere, steady)
        .context("a machine that is replaced at its address")?;
    traffic.check()?;
    if fixture.tier == Tier::Full {
        replace_machine(fixture, spec, steady)
            .context("a machine that is replaced at another address")?;
        traffic.check()?;
    }
    Ok(())
}

/// Destroys the node's machine, and adds another one under its Node.
fn replace_machine(fixture: &mut Fixture<'_>, spec: &NodeSpec, steady: &[Endpoint]) -> Result<()> {
    fixture.cluster.destroy_machine(&spec.name)?;
    fixture.sh(&format!("delete pod {GUEST} --force"))?;
    add_node(fixture, spec, steady)
}

/// Adds the node and starts a pod on it.
fn add_node(fixture: &mut Fixture<'_>, spec: &NodeSpec, steady: &[Endpoint]) -> Result<()> {
    let NodeSpec { name, address } = spec;
    fixture.cluster.add_node(spec.clone())?;
    let start = Instant::now();
    fixture.cluster.wait_nodes_ready()?;
    let what = format!("{name} at {address}: from its registration to Ready");
    fixture.measure_time(&what, start.elapsed());
    check_paths(fixture, &pods::start(fixture, GUEST, name)?, steady)
}

/// Reboots the node, first without an agent: no pod must start before the agent runs.
fn reboot_node(fixture: &mut Fixture<'_>, name: &str, steady: &[Endpoint]) -> Result<()> {
    let boot_id = fixture.cluster.node(name)?.boot_id()?;
    agents::hide_image(fixture, name, HIDDEN)?;
    let node = fixture.cluster.reboot(name)?;
    ensure!(
        node.boot_id()? != boot_id,
        "the reboot did not change the boot ID"
    );
    let before = check_without_agent(fixture, name).context("before the agent runs");
    agents::show_image(fixture, name, HIDDEN)?;
    before?;
    // kubelet may retry the image only after minutes.
    let line = format!(
        "delete pod --namespace kube-system --selector app.kubernetes.io/name=tweed \
         --field-selector spec.nodeName={name} --wait=false"
    );
    fixture.kubectl().sh(&line)?;
    let start = Instant::now();
    fixture.cluster.wait_nodes_ready()?;
    let guest = wait_for_guest(fixture, name)?;
    let what = "after a reboot: from the agent's start to the pod's";
    fixture.measure_time(what, start.elapsed());
    check_paths(fixture, &guest, steady)?;
    consistency::wait_until_equal(fixture).context("after the reboot")
}

/// Checks that kubelet does not start the pod from before the reboot, and that ADD
/// refuses to attach another one.
fn check_without_agent(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    let what = "Ready to be False because of STATUS";
    let message = fixture.kubectl().wait_for(what, LIMIT, || {
        let line = format!("get node {name}");
        let node = fixture.kubectl().json(&line).map_err(|e| e.chain())?;
        match (condition(&node, "Ready"), message_of(&node)) {
            (Some("False"), Some(message)) if message.contains("tweed") => Ok(message.to_owned()),
            _ => Err(node["status"]["conditions"].to_string()),
        }
    })?;
    fixture.log(&format!("rebooted, without an agent: {message}"));
    let node = fixture.cluster.node(name)?;
    let status = plugin::status(node)?.context("STATUS says that pods are served")?;
    let added = plugin::add(node)?.context("ADD has attached a pod")?;
    ensure!(
        added["code"] == TRY_AGAIN_LATER,
        "ADD does not have the error code \"try again later\": {added}; STATUS: {status}"
    );
    let links = node.sh("ip -brief link show group 116; ip -brief link show type vxlan")?;
    ensure!(links.trim().is_empty(), "there are links of tweed: {links}");
    // kubelet reports it when it handles the pod, not at once.
    let what = "kubelet's Event with the reason why the pod does not start";
    let line = format!("events --for pod/{GUEST} --types Warning --output json");
    fixture.kubectl().wait_for(what, LIMIT, || {
        let events = fixture.sh(&line).map_err(|error| error.chain())?;
        let names_it =
            events.contains("NetworkNotReady") || events.contains("FailedCreatePodSandBox");
        if names_it { Ok(()) } else { Err(events) }
    })?;
    Ok(())
}

/// Waits until the pod from before the reboot runs again in a new sandbox.
fn wait_for_guest(fixture: &Fixture<'_>, name: &str) -> Result<Endpoint> {
    let node = fixture.cluster.node(name)?;
    let route = wait_until("the route to the pod", LIMIT, || {
        let routes = node.sh("ip route show proto 116 scope link");
        match routes.map_err(|error| error.chain())? {
            routes if routes.trim().is_empty() => Err("there is no route to a pod".to_owned()),
            routes => Ok(routes),
        }
    })?;
    let what = format!("{GUEST} to be Ready with an address of this boot ({route})");
    let pod = fixture.kubectl().wait_for(&what, LIMIT, || {
        let pod = fixture.wait_ready(GUEST, LIMIT).map_err(|e| e.chain())?;
        let address = pod["status"]["podIP"].as_str().unwrap_or_default();
        let routes = node.sh(&format!("ip route show proto 116 {address}"));
        match routes.map_err(|error| error.chain())? {
            routes if routes.trim().is_empty() => Err(pod["status"].to_string()),
            _ => Ok(pod),
        }
    })?;
    Endpoint::pod(&pod)
}

/// Drains the node: routes, links and addresses of its pods are removed, the node stays.
fn drain_node(fixture: &Fixture<'_>, name: &str, steady: &[Endpoint]) -> Result<()> {
    fixture.kubectl().sh(&format!(
        "drain {name} --force --ignore-daemonsets --grace-period=1 --timeout=120s"
    ))?;
    let node = fixture.cluster.node(name)?;
    wait_until(
        "routes, links and claims of the drained pods to be removed",
        LIMIT,
        || {
            let left = node.sh(
                "ip route show proto 116 scope link; ip -brief link show group 116; \
             find /run/tweed/ipam -type l",
            );
            match left.map_err(|error| error.chain())? {
                left if left.trim().is_empty() => Ok(()),
                left => Err(left),
            }
        },
    )?;
    overlay::wait_until_correct(fixture.cluster)?;
    for pod in steady {
        pod.ping(&Endpoint::node(node), 3)?;
    }
    fixture.log("drained: nothing of its pods is left, and pods reach the node");
    Ok(())
}

/// Checks the overlay of all nodes, and pings in both directions.
fn check_paths(fixture: &Fixture<'_>, guest: &Endpoint, steady: &[Endpoint]) -> Result<()> {
    overlay::wait_until_correct(fixture.cluster)?;
    for pod in steady {
        pod.ping(guest, 3)?;
        guest.ping(pod, 3)?;
    }
    Ok(())
}

fn message_of(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    ready["message"].as_str()
}
