//! What makes pods is killed while it makes and deletes them: the runtime, the
//! kubelet, the agent. Running pods notice nothing, and nothing is left behind.

mod caught;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Component, Machine};

use super::{Begins, Scenario, Tier};
use crate::place::Place;
use crate::stage::{AGENTS, Stage};
use crate::traffic::Traffic;
use crate::{accounts, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "crash",
    shows: "runtime, kubelet and agent are killed while pods come and go: nothing is lost or left",
    begins: Begins::Ready,
    run,
};

/// A kubelet that starts looks at each container that its runtime has not started,
/// for more than 3 s, before it does anything else.
const LIMIT: Duration = Duration::from_secs(600);

/// How many pods have to come or go before something is killed.
const UNDER_WAY: usize = 2;

/// What is done to a node.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// A component is killed, and started again.
    Kill(Component),
    /// A component is ended as a service manager does it, and started again.
    Restart(Component),
    /// The agent is killed; kubelet starts it again.
    KillAgent,
    /// The agent's pod is deleted; the DaemonSet makes another.
    DeleteAgent,
}

const BLOWS: [Blow; 6] = [
    Blow::Kill(Component::Containerd),
    Blow::KillAgent,
    Blow::Kill(Component::Kubelet),
    Blow::DeleteAgent,
    Blow::Restart(Component::Containerd),
    Blow::Restart(Component::Kubelet),
];

/// How many pods, and how often each blow falls.
struct Size {
    pods: usize,
    rounds: usize,
}

impl Size {
    fn of(tier: Tier) -> Self {
        match tier {
            Tier::Ci => Self {
                pods: 10,
                rounds: 1,
            },
            Tier::Full => Self {
                pods: 20,
                rounds: 4,
            },
        }
    }
}

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let worker = stage.cluster.workers().next().context("no worker")?;
    let worker = worker.name().to_owned();
    let other = stage.cluster.nodes().find(|node| node.name() != worker);
    let other = other.context("only one node")?.name().to_owned();
    let mut traffic = start_traffic(stage, &worker, &other)?;

    caught::run(stage, &worker)?;
    traffic.check()?;
    let size = Size::of(stage.tier);
    storm(stage, &worker, &size)?;
    traffic.check()?;
    let total = traffic.stop()?;
    let what = format!(
        "pings lost meanwhile, of {} in {} pod pairs",
        total.answered, total.pings
    );
    stage.measure(&what, "0");
    Ok(())
}

/// Two pods on the node that is hit and one on another, which ping each other,
/// and a connection between the nodes.
fn start_traffic(stage: &Stage<'_>, worker: &str, other: &str) -> Result<Traffic> {
    let places = [("one", worker), ("two", worker), ("far", other)]
        .map(|(name, node)| pods::start(stage, name, node));
    let places = places.into_iter().collect::<Result<Vec<Place>>>()?;
    let mut traffic = Traffic::between(&places)?;
    if let [one, _, far] = places.as_slice() {
        traffic.add_stream(one, far, one.address)?;
    }
    Ok(traffic)
}

/// Strikes in the midst of pods that come and of pods that go, again and again.
fn storm(stage: &mut Stage<'_>, worker: &str, size: &Size) -> Result<()> {
    stage.apply(&deployment(worker).to_string())?;
    let node = stage.cluster.node(worker)?;
    let lasting = container_ids(node)?;
    let start = Instant::now();
    for round in 0..size.rounds {
        for (number, blow) in BLOWS.into_iter().enumerate() {
            // While pods come in one round, while they go in the next.
            let meets_coming = (round + number) % 2 == 0;
            let before = container_ids(node)?;
            scale(stage, size.pods)?;
            under_way(node, "come", |now| {
                now.difference(&before).count() >= UNDER_WAY
            })?;
            if meets_coming {
                strike(stage, node, blow, "come")?;
            }
            let before = container_ids(node)?;
            scale(stage, 0)?;
            // A blow may have left fewer to go.
            under_way(node, "go", |now| {
                before.difference(now).count() >= UNDER_WAY || now.is_subset(&lasting)
            })?;
            if !meets_coming {
                strike(stage, node, blow, "go")?;
            }
            wait_gone(stage)?;
        }
    }
    let blows = size.rounds * BLOWS.len();
    let took = start.elapsed().as_secs_f64();
    stage.tell(&format!("{blows} blows in {took:.1} s"));
    settle(stage, size, blows)
}

/// All pods come once more, and go: nothing of what was cut off is left.
fn settle(stage: &mut Stage<'_>, size: &Size, blows: usize) -> Result<()> {
    let start = Instant::now();
    scale(stage, size.pods)?;
    stage.kubectl().wait_rolled_out(AGENTS, LIMIT)?;
    stage.wait_all_ready("app=brief", size.pods, LIMIT)?;
    stage.cluster.wait_nodes_ready()?;
    accounts::settle(stage).context("with all pods, after the last blow")?;
    let took = format!("{:.1} s", start.elapsed().as_secs_f64());
    stage.measure(
        &format!(
            "{} pods Ready and all accounts equal, after {blows} blows",
            size.pods
        ),
        took,
    );
    scale(stage, 0)?;
    wait_gone(stage)?;
    accounts::settle(stage).context("with the pods gone")
}

fn wait_gone(stage: &Stage<'_>) -> Result<()> {
    let what = "the pods to be gone";
    stage.kubectl().wait_for(what, LIMIT, || {
        let left = stage.sh("get pods --selector app=brief --output name");
        match left.map_err(|error| error.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}

/// Tells the Deployment; nobody waits.
fn scale(stage: &Stage<'_>, pods: usize) -> Result<()> {
    stage.sh(&format!("scale deployment brief --replicas {pods}"))?;
    Ok(())
}

/// Waits until some attachments have come, or gone: then others are about to.
fn under_way(
    node: &Machine,
    what: &str,
    is_under_way: impl Fn(&BTreeSet<String>) -> bool,
) -> Result<()> {
    wait_until(&format!("pods to {what}"), LIMIT, || {
        let now = container_ids(node).map_err(|error| format!("{error:#}"))?;
        if is_under_way(&now) {
            return Ok(());
        }
        Err(format!("the store has {now:?}"))
    })?;
    Ok(())
}

fn container_ids(node: &Machine) -> Result<BTreeSet<String>> {
    let records = accounts::records(node)?;
    let ids = records.iter().filter_map(|one| one["containerId"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// `what` is what pods are about to do.
fn strike(stage: &Stage<'_>, node: &Machine, blow: Blow, what: &str) -> Result<()> {
    match blow {
        Blow::Kill(component) => {
            stage.tell(&format!("{} is killed while pods {what}", component.name()));
            node.restart(component, Signal::SIGKILL)?;
        }
        Blow::Restart(component) => {
            stage.tell(&format!(
                "{} is restarted while pods {what}",
                component.name()
            ));
            node.restart(component, Signal::SIGTERM)?;
        }
        Blow::KillAgent => {
            stage.tell(&format!("the agent is killed while pods {what}"));
            // Where it has been killed before, kubelet may have it wait.
            wait_until("an agent to kill", LIMIT, || {
                let killed = node.sh("pkill -KILL --exact tweed-agent");
                killed.map(drop).map_err(|error| error.chain())
            })?;
        }
        Blow::DeleteAgent => {
            stage.tell(&format!("the agent's pod is deleted while pods {what}"));
            let line = format!(
                "delete pods --namespace kube-system --selector app.kubernetes.io/name=tweed \
                 --field-selector spec.nodeName={} --wait=false",
                node.name()
            );
            stage.kubectl().sh(&line)?;
        }
    }
    Ok(())
}

/// Pods on one node that only are there. The scheduler brings them there: of
/// those that name their node, kubelet may refuse one, and another would be made
/// at once.
fn deployment(node: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "brief" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "brief" } },
            "template": {
                "metadata": { "labels": { "app": "brief" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": "pause", "image": "registry.k8s.io/pause:3.10.1" }],
                },
            },
        },
    })
}
