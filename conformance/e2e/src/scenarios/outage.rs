//! The API server is away: packets go on, and kubelet and runtime make, restart
//! and delete pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Machine, STATIC_PODS, condition};

use super::{Begins, Scenario, Tier};
use crate::place::Place;
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::{accounts, overlay, plugin, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "outage",
    shows: "the API server is away: packets go on, pods come, restart and go, nodes stay Ready",
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(120);

/// Longer than that, and Kubernetes itself may call the nodes' state unknown.
const GRACE: Duration = Duration::from_secs(40);

/// The condition that is then in doubt.
const READY: &str = "Ready";

/// A pod whose sandbox is killed.
const RESTARTED: &str = "restarted";

/// A pod that is made and deleted meanwhile, and one that is made and stays.
const BRIEF: &str = "brief";
const LASTING: &str = "lasting";

/// The addresses that two pods have got meanwhile.
struct Meanwhile {
    restarted: IpAddr,
    lasting: IpAddr,
}

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let away = match stage.tier {
        Tier::Ci => Duration::from_secs(20),
        Tier::Full => Duration::from_secs(120),
    };
    let steady = stage
        .cluster
        .nodes()
        .map(|node| pods::start(stage, &format!("steady-{}", node.name()), node.name()))
        .collect::<Result<Vec<Place>>>()?;
    let worker = stage.cluster.workers().next().context("no worker")?;
    let worker = worker.name().to_owned();
    let restarted = pods::start(stage, RESTARTED, &worker)?;
    let sandbox = sandbox_of(stage, &worker, RESTARTED)?;
    let before = transitions(stage)?;
    let mut traffic = Traffic::between(&steady)?;
    if let [one, two, ..] = steady.as_slice() {
        traffic.add_stream(one, two, one.address)?;
    }

    let start = Instant::now();
    stage.cluster.stop_api_server()?;
    stage.tell("the API server is away");
    let played = restart(stage, &worker, &restarted, &sandbox)
        .and_then(|restarted| make_and_delete(stage, &worker, &steady, restarted))
        .and_then(|meanwhile| {
            std::thread::sleep(away.saturating_sub(start.elapsed()));
            all_serve(stage).map(|()| meanwhile)
        });
    let played = stage.witness(played);
    let restored = stage.cluster.start_api_server();
    let away = start.elapsed();
    let mut took = format!("{:.0} s", away.as_secs_f64());
    if away >= GRACE {
        took += ", so long that Ready was not compared";
    }
    stage.measure("the API server was away for", took);
    let converged = played
        .and_then(|meanwhile| restored.map(|()| meanwhile).map_err(Into::into))
        .and_then(|meanwhile| converge(stage, &worker, &meanwhile, &before, away));
    let converged = stage.witness(converged);
    for name in [BRIEF, LASTING] {
        let file = manifest_of(stage.cluster.node(&worker)?, name);
        // A scenario that has failed leaves either behind.
        let _ = fs::remove_file(file);
    }
    converged?;
    accounts::settle(stage).context("with the API server back")?;
    traffic.check()?;
    let total = traffic.stop()?;
    let what = format!("pings lost meanwhile, of {}", total.answered);
    stage.measure(&what, "0");
    pods::start(stage, "afterwards", &worker)?.ping(steady.last().context("no pods")?, 3)
}

/// Kills a pod's sandbox, and waits for the runtime's DEL and ADD; the new
/// address.
fn restart(stage: &Stage<'_>, worker: &str, pod: &Place, sandbox: &str) -> Result<IpAddr> {
    let node = stage.cluster.node(worker)?;
    let before = addresses(node)?;
    node.ctr(&["tasks", "kill", "--signal", "SIGKILL", sandbox])?;
    let new = wait_until("another sandbox for the pod", LIMIT, || {
        let now = addresses(node).map_err(|error| format!("{error:#}"))?;
        if now.contains(&pod.address) {
            return Err(format!("{} is still there", pod.address));
        }
        let new = now.difference(&before).next().copied();
        new.ok_or_else(|| format!("{now:?}"))
    })?;
    stage.tell(&format!("{RESTARTED} had {}, and has {new}", pod.address));
    Ok(new)
}

/// Gives kubelet one pod to make and delete, and another that stays.
fn make_and_delete(
    stage: &Stage<'_>,
    worker: &str,
    steady: &[Place],
    restarted: IpAddr,
) -> Result<Meanwhile> {
    let node = stage.cluster.node(worker)?;
    let brief = make(stage, node, BRIEF)?;
    for pod in steady {
        pod.ping_address(BRIEF, brief, 3)?;
    }
    let file = manifest_of(node, BRIEF);
    fs::remove_file(&file).with_context(|| file.display().to_string())?;
    wait_until("the end of the pod", LIMIT, || {
        let now = addresses(node).map_err(|error| format!("{error:#}"))?;
        if now.contains(&brief) {
            return Err(format!("{brief} is still there"));
        }
        Ok(())
    })?;
    let lasting = make(stage, node, LASTING)?;
    for pod in steady {
        pod.ping_address(LASTING, lasting, 3)?;
        pod.ping_address(RESTARTED, restarted, 3)?;
    }
    stage.tell(&format!(
        "{BRIEF} came with {brief} and went, {LASTING} came with {lasting}"
    ));
    Ok(Meanwhile { restarted, lasting })
}

/// Has kubelet make a pod; its address.
fn make(stage: &Stage<'_>, node: &Machine, name: &str) -> Result<IpAddr> {
    let before = addresses(node)?;
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": stage.namespace() },
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

/// No node has stopped to serve new pods.
fn all_serve(stage: &Stage<'_>) -> Result<()> {
    for node in stage.cluster.nodes() {
        let name = node.name();
        let status = plugin::status(node)?;
        ensure!(status.is_none(), "{name}: STATUS says {status:?}");
        let state = node.sh("cat /run/tweed/agent.json")?;
        let state: Value = serde_json::from_str(&state).context(state)?;
        ensure!(state["ready"] == true, "{name}: {state}");
    }
    Ok(())
}

/// What must be so once the API server is back.
fn converge(
    stage: &Stage<'_>,
    worker: &str,
    meanwhile: &Meanwhile,
    before: &BTreeMap<String, String>,
    away: Duration,
) -> Result<()> {
    let start = Instant::now();
    stage.cluster.wait_nodes_ready()?;
    overlay::settle(stage.cluster)?;
    let mirror = format!("{LASTING}-{worker}");
    for (pod, address) in [
        (RESTARTED, meanwhile.restarted),
        (&*mirror, meanwhile.lasting),
    ] {
        let what = format!("the API to know that {pod} has {address}");
        let address = address.to_string();
        stage.kubectl().wait_for(&what, LIMIT, || {
            let pod = stage.wait_ready(pod, LIMIT).map_err(|e| e.chain())?;
            let is_so = pod["status"]["podIP"] == *address;
            is_so.then_some(()).ok_or_else(|| pod["status"].to_string())
        })?;
    }
    let after = transitions(stage)?;
    for (what, since) in before {
        let now = after.get(what);
        let is_in_doubt = what.ends_with(READY) && away >= GRACE;
        ensure!(
            now == Some(since) || is_in_doubt,
            "{what} has changed: it was so since {since}, and is since {now:?}"
        );
    }
    let took = start.elapsed().as_secs_f64();
    stage.tell(&format!("all is as it should be {took:.1} s later"));
    Ok(())
}

/// Since when each node's network is available, and since when it is Ready.
fn transitions(stage: &Stage<'_>) -> Result<BTreeMap<String, String>> {
    let mut since = BTreeMap::new();
    for node in stage.kubectl().list("nodes")? {
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

/// The addresses of a node's pods, as its routes have them.
fn addresses(node: &Machine) -> Result<BTreeSet<IpAddr>> {
    let routes = node.sh("ip route show proto 116 scope link | cut -d ' ' -f 1")?;
    let parsed = routes.lines().map(str::parse).collect::<Result<_, _>>();
    parsed.context(routes)
}

fn sandbox_of(stage: &Stage<'_>, worker: &str, pod: &str) -> Result<String> {
    // One of an earlier run may have had the same name.
    let found = stage.sh(&format!(
        "get pod {pod} --output jsonpath={{.metadata.uid}}"
    ))?;
    let filter = format!(
        "labels.\"io.kubernetes.pod.uid\"=={},labels.\"io.cri-containerd.kind\"==sandbox",
        found.trim()
    );
    let node = stage.cluster.node(worker)?;
    let ids = node.ctr(&["containers", "list", "--quiet", &filter])?;
    let id = ids.lines().last();
    Ok(id
        .with_context(|| format!("{pod} has no sandbox"))?
        .to_owned())
}

fn manifest_of(node: &Machine, pod: &str) -> PathBuf {
    node.own(STATIC_PODS)
        .join(Path::new(pod).with_extension("json"))
}
