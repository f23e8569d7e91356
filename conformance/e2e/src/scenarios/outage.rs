//! The API server is stopped: traffic continues, and kubelet and runtime create,
//! restart and delete pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Machine, STATIC_PODS, condition};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::traffic::Traffic;
use crate::{consistency, overlay, plugin, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "outage",
    shows: "without the API server traffic continues, pods start, restart and end, nodes stay Ready",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// After a longer outage, Kubernetes itself may set the nodes' Ready to unknown.
const GRACE: Duration = Duration::from_secs(40);

/// The condition that is not compared after a longer outage than [`GRACE`].
const READY: &str = "Ready";

/// A pod whose sandbox is killed.
const RESTARTED: &str = "restarted";

/// A pod that is created and deleted during the outage.
const TEMPORARY: &str = "temporary";

/// A pod that is created during the outage and stays.
const PERMANENT: &str = "permanent";

/// The addresses that two pods got during the outage.
struct NewAddresses {
    restarted: IpAddr,
    permanent: IpAddr,
}

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let duration = Duration::from_secs(fixture.tier.size(20, 120));
    let steady = pods::start_on_all(fixture, "steady")?;
    let worker = fixture.first_worker()?;
    let restarted = pods::start(fixture, RESTARTED, &worker)?;
    let sandbox = sandbox_of(fixture, &worker, RESTARTED)?;
    let before = transitions(fixture)?;
    let mut traffic = Traffic::between(&steady)?;
    if let [one, two, ..] = steady.as_slice() {
        traffic.add_stream(one, two, one.address)?;
    }

    let start = Instant::now();
    fixture.cluster.stop_api_server()?;
    fixture.log("the API server is stopped");
    let result = restart(fixture, &worker, &restarted, &sandbox)
        .and_then(|restarted| create_and_delete(fixture, &worker, &steady, restarted))
        .and_then(|new_addresses| {
            std::thread::sleep(duration.saturating_sub(start.elapsed()));
            check_all_serve(fixture).map(|()| new_addresses)
        });
    let result = fixture.report_failure(result);
    let restored = fixture.cluster.start_api_server();
    let outage = start.elapsed();
    let mut took = format!("{:.0} s", outage.as_secs_f64());
    if outage >= GRACE {
        took += ", so long that Ready was not compared";
    }
    fixture.measure("the API server was stopped for", took);
    let converged = result
        .and_then(|new_addresses| restored.map(|()| new_addresses).map_err(Into::into))
        .and_then(|new_addresses| converge(fixture, &worker, &new_addresses, &before, outage));
    let converged = fixture.report_failure(converged);
    for name in [TEMPORARY, PERMANENT] {
        let file = manifest_of(fixture.cluster.node(&worker)?, name);
        // The temporary one exists only if the scenario has failed.
        let _ = fs::remove_file(file);
    }
    converged?;
    consistency::wait_until_equal(fixture).context("after the API server was started again")?;
    traffic.check()?;
    let total = traffic.stop()?;
    let what = format!("pings lost during the outage, of {}", total.answered);
    fixture.measure(&what, "0");
    pods::start(fixture, "afterwards", &worker)?.ping(steady.last().context("no pods")?, 3)
}

/// Kills a pod's sandbox, and waits for DEL and ADD of the runtime. Returns the new
/// address.
fn restart(fixture: &Fixture<'_>, worker: &str, pod: &Endpoint, sandbox: &str) -> Result<IpAddr> {
    let node = fixture.cluster.node(worker)?;
    let before = addresses(node)?;
    node.ctr(&["tasks", "kill", "--signal", "SIGKILL", sandbox])?;
    let new = wait_until("another sandbox for the pod", LIMIT, || {
        let now = addresses(node).map_err(|error| format!("{error:#}"))?;
        if now.contains(&pod.address) {
            return Err(format!("{} is still in use", pod.address));
        }
        let new = now.difference(&before).next().copied();
        new.ok_or_else(|| format!("{now:?}"))
    })?;
    fixture.log(&format!("{RESTARTED} had {} and has {new}", pod.address));
    Ok(new)
}

/// Lets kubelet create and delete one pod, and create another that stays.
fn create_and_delete(
    fixture: &Fixture<'_>,
    worker: &str,
    steady: &[Endpoint],
    restarted: IpAddr,
) -> Result<NewAddresses> {
    let node = fixture.cluster.node(worker)?;
    let temporary = create(fixture, node, TEMPORARY)?;
    for pod in steady {
        pod.ping_address(TEMPORARY, temporary, 3)?;
    }
    let file = manifest_of(node, TEMPORARY);
    fs::remove_file(&file).with_context(|| file.display().to_string())?;
    wait_until("the end of the pod", LIMIT, || {
        let now = addresses(node).map_err(|error| format!("{error:#}"))?;
        if now.contains(&temporary) {
            return Err(format!("{temporary} is still in use"));
        }
        Ok(())
    })?;
    let permanent = create(fixture, node, PERMANENT)?;
    for pod in steady {
        pod.ping_address(PERMANENT, permanent, 3)?;
        pod.ping_address(RESTARTED, restarted, 3)?;
    }
    fixture.log(&format!(
        "{TEMPORARY} was created with {temporary} and deleted, {PERMANENT} was created with {permanent}"
    ));
    Ok(NewAddresses {
        restarted,
        permanent,
    })
}

/// Lets kubelet create a static pod; returns its address.
fn create(fixture: &Fixture<'_>, node: &Machine, name: &str) -> Result<IpAddr> {
    let before = addresses(node)?;
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": fixture.namespace() },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "pause", "image": "localhost/agnhost:lab" }],
        },
    });
    let file = manifest_of(node, name);
    fs::write(&file, manifest.to_string()).with_context(|| file.display().to_string())?;
    Ok(wait_until(&format!("the pod {name}"), LIMIT, || {
        let now = addresses(node).map_err(|error| format!("{error:#}"))?;
        let new = now.difference(&before).next().copied();
        new.ok_or_else(|| format!("{now:?}"))
    })?)
}

/// Checks that all nodes still serve new pods.
fn check_all_serve(fixture: &Fixture<'_>) -> Result<()> {
    for node in fixture.cluster.nodes() {
        let name = node.name();
        let status = plugin::status(node)?;
        ensure!(status.is_none(), "{name}: STATUS says {status:?}");
        let state = node.sh("cat /run/tweed/agent.json")?;
        let state: Value = serde_json::from_str(&state).context(state)?;
        ensure!(state["ready"] == true, "{name}: {state}");
    }
    Ok(())
}

/// Checks the state after the API server was started again.
fn converge(
    fixture: &Fixture<'_>,
    worker: &str,
    new_addresses: &NewAddresses,
    before: &BTreeMap<String, String>,
    outage: Duration,
) -> Result<()> {
    let start = Instant::now();
    fixture.cluster.wait_nodes_ready()?;
    overlay::wait_until_correct(fixture.cluster)?;
    let mirror = format!("{PERMANENT}-{worker}");
    for (pod, address) in [
        (RESTARTED, new_addresses.restarted),
        (&*mirror, new_addresses.permanent),
    ] {
        let what = format!("the API to know that {pod} has {address}");
        fixture.kubectl().wait_for(&what, LIMIT, || {
            let pod = fixture.wait_ready(pod, LIMIT).map_err(|e| e.chain())?;
            let is_so = pod["status"]["podIP"] == address.to_string();
            is_so.then_some(()).ok_or_else(|| pod["status"].to_string())
        })?;
    }
    let after = transitions(fixture)?;
    for (what, since) in before {
        let now = after.get(what);
        let is_in_doubt = what.ends_with(READY) && outage >= GRACE;
        ensure!(
            now == Some(since) || is_in_doubt,
            "{what} has changed: its last transition was at {since} and is now at {now:?}"
        );
    }
    let took = start.elapsed().as_secs_f64();
    fixture.log(&format!("everything is correct {took:.1} s later"));
    Ok(())
}

/// The last transitions of NetworkUnavailable and Ready of each node.
fn transitions(fixture: &Fixture<'_>) -> Result<BTreeMap<String, String>> {
    let mut since = BTreeMap::new();
    for node in fixture.kubectl().list("nodes")? {
        let name = node["metadata"]["name"].as_str().context("no name")?;
        ensure!(
            condition(&node, "NetworkUnavailable") == Some("False"),
            "{name}: {}",
            node["status"]["conditions"]
        );
        let conditions = node["status"]["conditions"].as_array();
        for one in conditions.into_iter().flatten() {
            let kind = one["type"].as_str().unwrap_or_default();
            if kind == "NetworkUnavailable" || kind == READY {
                let what = format!("{name} {kind}");
                since.insert(what, one["lastTransitionTime"].to_string());
            }
        }
    }
    Ok(since)
}

/// The addresses of a node's pods according to its routes.
fn addresses(node: &Machine) -> Result<BTreeSet<IpAddr>> {
    let routes = node.sh("ip route show proto 116 scope link | cut -d ' ' -f 1")?;
    let parsed = routes.lines().map(str::parse).collect::<Result<_, _>>();
    parsed.context(routes)
}

fn sandbox_of(fixture: &Fixture<'_>, worker: &str, pod: &str) -> Result<String> {
    // By UID: a pod of an earlier run may have had the same name.
    let found = fixture.sh(&format!(
        "get pod {pod} --output jsonpath={{.metadata.uid}}"
    ))?;
    let filter = format!(
        "labels.\"io.kubernetes.pod.uid\"=={},labels.\"io.cri-containerd.kind\"==sandbox",
        found.trim()
    );
    let node = fixture.cluster.node(worker)?;
    let ids = node.ctr(&["containers", "list", "--quiet", &filter])?;
    let id = ids.lines().last();
    Ok(id
        .with_context(|| format!("{pod} has no sandbox"))?
        .to_owned())
}

fn manifest_of(node: &Machine, pod: &str) -> PathBuf {
    node.host_path(STATIC_PODS)
        .join(Path::new(pod).with_extension("json"))
}
