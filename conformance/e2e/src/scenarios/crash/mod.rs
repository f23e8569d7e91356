//! Runtime, kubelet and agent are killed or restarted while pods are created and
//! deleted. Other pods lose no packet, and nothing of the deleted pods is left.

mod blocked_add;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::json;
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Component, Machine};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::{AGENTS, Fixture};
use crate::traffic::Traffic;
use crate::{consistency, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "crash",
    shows: "runtime, kubelet and agent are killed while pods are created and deleted: nothing is lost or left",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached. After its start, kubelet first
/// inspects each container that the runtime has not started, for more than 3 s each.
const LIMIT: Duration = Duration::from_secs(600);

/// Number of pods that are created or deleted before a fault is injected.
const MIN_CHANGES: usize = 2;

/// A fault on a node.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// A component is killed and started again.
    Kill(Component),
    /// A component is stopped by SIGTERM, as by a service manager, and started again.
    Restart(Component),
    /// The agent is killed; kubelet starts it again.
    KillAgent,
    /// The agent's pod is deleted; the DaemonSet creates another.
    DeleteAgent,
}

const FAULTS: [Fault; 6] = [
    Fault::Kill(Component::Containerd),
    Fault::KillAgent,
    Fault::Kill(Component::Kubelet),
    Fault::DeleteAgent,
    Fault::Restart(Component::Containerd),
    Fault::Restart(Component::Kubelet),
];

/// Number of pods, and how often each fault is injected.
struct Size {
    pods: usize,
    rounds: usize,
}

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let worker = fixture.first_worker()?;
    let found = fixture.cluster.nodes().find(|node| node.name() != worker);
    let other = found.context("only one node")?.name().to_owned();
    let mut traffic = start_traffic(fixture, &worker, &other)?;

    blocked_add::run(fixture, &worker)?;
    traffic.check()?;
    let (pods, rounds) = fixture.tier.size((10, 1), (20, 4));
    let size = Size { pods, rounds };
    inject_faults(fixture, &worker, &size)?;
    traffic.check()?;
    let total = traffic.stop()?;
    let what = format!(
        "pings lost meanwhile, of {} in {} pod pairs",
        total.answered, total.pings
    );
    fixture.measure(&what, "0");
    Ok(())
}

/// Pings between two pods on the affected node and one on another node, and a TCP
/// connection between the nodes.
fn start_traffic(fixture: &Fixture<'_>, worker: &str, other: &str) -> Result<Traffic> {
    let started = [("one", worker), ("two", worker), ("far", other)]
        .map(|(name, node)| pods::start(fixture, name, node));
    let endpoints = started.into_iter().collect::<Result<Vec<Endpoint>>>()?;
    let mut traffic = Traffic::between(&endpoints)?;
    if let [one, _, far] = endpoints.as_slice() {
        traffic.add_stream(one, far, one.address)?;
    }
    Ok(traffic)
}

/// Injects each fault while pods are created or while they are deleted, alternately.
fn inject_faults(fixture: &mut Fixture<'_>, worker: &str, size: &Size) -> Result<()> {
    // Assigned by the scheduler: if pods named their node themselves, kubelet might refuse one
    // and another would be created at once.
    let place = ("nodeSelector", json!({ "kubernetes.io/hostname": worker }));
    fixture.apply(&pods::deployment("churn", 0, place).to_string())?;
    let node = fixture.cluster.node(worker)?;
    let permanent = container_ids(node)?;
    let start = Instant::now();
    for round in 0..size.rounds {
        for (number, fault) in FAULTS.into_iter().enumerate() {
            // Each fault meets creation in one round and deletion in the next.
            let during_creation = (round + number) % 2 == 0;
            let before = container_ids(node)?;
            scale(fixture, size.pods)?;
            wait_for_changes(node, "be created", |now| {
                now.difference(&before).count() >= MIN_CHANGES
            })?;
            if during_creation {
                inject(fixture, node, fault, "are created")?;
            }
            let before = container_ids(node)?;
            scale(fixture, 0)?;
            // After a fault there may be fewer pods to delete.
            wait_for_changes(node, "be deleted", |now| {
                before.difference(now).count() >= MIN_CHANGES || now.is_subset(&permanent)
            })?;
            if !during_creation {
                inject(fixture, node, fault, "are deleted")?;
            }
            wait_until_deleted(fixture)?;
        }
    }
    let faults = size.rounds * FAULTS.len();
    let took = start.elapsed().as_secs_f64();
    fixture.log(&format!("{faults} faults in {took:.1} s"));
    check_consistency(fixture, size, faults)
}

/// Creates and deletes all pods once more: nothing of interrupted operations is left.
fn check_consistency(fixture: &mut Fixture<'_>, size: &Size, faults: usize) -> Result<()> {
    let start = Instant::now();
    scale(fixture, size.pods)?;
    fixture.kubectl().wait_rolled_out(AGENTS, LIMIT)?;
    fixture.wait_all_ready("app=churn", size.pods, LIMIT)?;
    fixture.cluster.wait_nodes_ready()?;
    consistency::wait_until_equal(fixture).context("with all pods, after the last fault")?;
    let what = format!(
        "{} pods Ready and API, runtime, store and kernel equal, after {faults} faults",
        size.pods
    );
    fixture.measure_time(&what, start.elapsed());
    scale(fixture, 0)?;
    wait_until_deleted(fixture)?;
    consistency::wait_until_equal(fixture).context("with the pods deleted")
}

fn wait_until_deleted(fixture: &Fixture<'_>) -> Result<()> {
    let what = "the pods to be deleted";
    fixture.kubectl().wait_for(what, LIMIT, || {
        let left = fixture.sh("get pods --selector app=churn --output name");
        match left.map_err(|error| error.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}

/// Scales the Deployment without waiting.
fn scale(fixture: &Fixture<'_>, pods: usize) -> Result<()> {
    fixture.sh(&format!("scale deployment churn --replicas {pods}"))?;
    Ok(())
}

/// Waits until some attachments have been created or deleted: then others follow.
fn wait_for_changes(
    node: &Machine,
    what: &str,
    has_changed: impl Fn(&BTreeSet<String>) -> bool,
) -> Result<()> {
    wait_until(&format!("pods to {what}"), LIMIT, || {
        let now = container_ids(node).map_err(|error| format!("{error:#}"))?;
        if has_changed(&now) {
            return Ok(());
        }
        Err(format!("the store has {now:?}"))
    })?;
    Ok(())
}

fn container_ids(node: &Machine) -> Result<BTreeSet<String>> {
    let records = consistency::records(node)?;
    let ids = records.iter().filter_map(|one| one["containerId"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// `what` says what happens to pods meanwhile, for the log.
fn inject(fixture: &Fixture<'_>, node: &Machine, fault: Fault, what: &str) -> Result<()> {
    match fault {
        Fault::Kill(component) => {
            fixture.log(&format!("{} is killed while pods {what}", component.name()));
            node.restart(component, Signal::SIGKILL)?;
        }
        Fault::Restart(component) => {
            fixture.log(&format!(
                "{} is restarted while pods {what}",
                component.name()
            ));
            node.restart(component, Signal::SIGTERM)?;
        }
        Fault::KillAgent => {
            fixture.log(&format!("the agent is killed while pods {what}"));
            // If it was killed before, kubelet may delay its restart.
            wait_until("an agent to kill", LIMIT, || {
                let killed = node.sh("pkill -KILL --exact tweed-agent");
                killed.map(drop).map_err(|error| error.chain())
            })?;
        }
        Fault::DeleteAgent => {
            fixture.log(&format!("the agent's pod is deleted while pods {what}"));
            let line = format!(
                "delete pods --namespace kube-system --selector app.kubernetes.io/name=tweed \
                 --field-selector spec.nodeName={} --wait=false",
                node.name()
            );
            fixture.kubectl().sh(&line)?;
        }
    }
    Ok(())
}
