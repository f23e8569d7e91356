//! Many pods come and go under traffic: no address twice, none left behind.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tweed_lab::kubernetes::Machine;

use super::{Begins, Scenario, Tier};
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::{accounts, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "scale",
    shows: "many pods come and go under traffic: no address twice, none left behind",
    tier: Tier::Ci,
    begins: Begins::Ready,
    run,
};

/// For all pods of one round to be Ready, or gone.
const ROUND_LIMIT: Duration = Duration::from_secs(600);

/// Wins over tweed's config by its name, on the nodes where it is.
const REFERENCE: &str = "00-reference.conflist";

/// How many pods a node, and how many times.
struct Size {
    pods: usize,
    rounds: usize,
}

impl Size {
    fn of(tier: Tier) -> Self {
        match tier {
            Tier::Ci => Self {
                pods: 30,
                rounds: 1,
            },
            Tier::Full => Self {
                pods: 100,
                rounds: 3,
            },
        }
    }
}

fn run(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let Size { pods, rounds } = Size::of(stage.tier);
    let workers: Vec<String> = stage
        .cluster
        .workers()
        .map(|w| w.name().to_owned())
        .collect();
    let all = pods * workers.len();

    let traffic = start_traffic(stage)?;
    stage.apply(&deployment())?;
    for round in 1..=rounds {
        let took = scale_to(stage, all)?;
        let starts = start_times(stage)?;
        stage.measure(
            &format!("round {round}: {all} pods Ready, {pods} a node"),
            format!("{:.1} s; a pod in {starts}", took.as_secs_f64()),
        );
        accounts::settle(stage).with_context(|| format!("round {round}, with all pods"))?;
        let took = scale_to(stage, 0)?;
        let what = format!("round {round}: all of them gone");
        stage.measure(&what, format!("{:.1} s", took.as_secs_f64()));
        accounts::settle(stage).with_context(|| format!("round {round}, with all pods gone"))?;
    }
    let total = traffic.stop().context("the traffic beside it")?;
    let what = format!(
        "pings lost beside it, of {} between two pods",
        total.answered
    );
    stage.measure(&what, "0");

    compare(stage, &workers, all)
}

/// The same once with the reference plugin, on the same nodes.
fn compare(stage: &mut Stage<'_>, workers: &[String], all: usize) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (index, name) in workers.iter().enumerate() {
        let folder = stage.cluster.node(name)?.own("/etc/cni/net.d");
        let file = folder.join(REFERENCE);
        let config = reference(index).to_string();
        fs::write(&file, config).with_context(|| file.display().to_string())?;
        files.push(file);
    }
    let compared = scale_to(stage, all).and_then(|took| Ok((took, start_times(stage)?)));
    // Each pod goes by the way it came.
    let gone = scale_to(stage, 0);
    for file in &files {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    let (took, starts) = compared?;
    gone?;
    stage.measure(
        &format!("the reference plugin bridge: {all} pods Ready"),
        format!("{:.1} s; a pod in {starts}", took.as_secs_f64()),
    );
    for name in workers {
        // Nobody else takes it away.
        stage.cluster.node(name)?.sh("ip link del reference0")?;
    }
    accounts::settle(stage).context("after the comparison")
}

fn reference(node: usize) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "reference",
        "plugins": [{
            "type": "bridge",
            "bridge": "reference0",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": format!("172.31.{node}.0/24") }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
}

/// Two pods on two workers, of which one pings the other.
fn start_traffic(stage: &Stage<'_>) -> anyhow::Result<Traffic> {
    let nodes: Vec<&Machine> = stage.cluster.workers().collect();
    let (first, last) = nodes.first().zip(nodes.last()).context("no workers")?;
    let asks = pods::start(stage, "asks", first.name())?;
    let answers = pods::start(stage, "answers", last.name())?;
    Traffic::between(&[asks, answers])
}

/// Scales the Deployment; how long it took for all to be Ready, or gone.
fn scale_to(stage: &Stage<'_>, count: usize) -> anyhow::Result<Duration> {
    let start = Instant::now();
    stage.sh(&format!("scale deployment many --replicas {count}"))?;
    stage.wait_all_ready("app=many", count, ROUND_LIMIT)?;
    Ok(start.elapsed())
}

/// How long pods took from their creation to Ready, as text. Kubernetes tells
/// whole seconds.
fn start_times(stage: &Stage<'_>) -> anyhow::Result<String> {
    let words = format!("pods --namespace {} --selector app=many", stage.namespace());
    let mut times = stage
        .kubectl()
        .list(&words)?
        .iter()
        .map(|pod| {
            let ready = pod["status"]["conditions"]
                .as_array()
                .and_then(|all| all.iter().find(|one| one["type"] == "Ready"))
                .and_then(|one| one["lastTransitionTime"].as_str());
            let created = pod["metadata"]["creationTimestamp"].as_str();
            let (created, ready) = created.zip(ready)?;
            Some(second_of_day(ready)? - second_of_day(created)?)
        })
        // Past midnight the day begins anew.
        .map(|time| time.map(|seconds| seconds.rem_euclid(86_400)))
        .collect::<Option<Vec<i64>>>()
        .context("a pod without its times")?;
    times.sort_unstable();
    let middle = times.get(times.len() / 2).context("no pods")?;
    let longest = times.last().context("no pods")?;
    Ok(format!("{middle} s (median), {longest} s (longest)"))
}

/// Of an RFC 3339 time in UTC, as Kubernetes writes it.
fn second_of_day(time: &str) -> Option<i64> {
    let (_, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let mut parts = clock.split(':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    Some((hours * 60 + minutes) * 60 + seconds)
}

/// Pods that do nothing, the same number on every worker.
fn deployment() -> String {
    let template = json!({
        "metadata": { "labels": { "app": "many" } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": { "matchLabels": { "app": "many" } },
            }],
            "containers": [{ "name": "pause", "image": "registry.k8s.io/pause:3.10.1" }],
        },
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "many" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "many" } },
            "template": template,
        },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_kubernetes_is_a_second_of_its_day() {
        assert_eq!(second_of_day("2026-11-21T14:09:33Z"), Some(50_973));
        assert_eq!(second_of_day("2026-11-21T14:09:33+01:00"), None);
        assert_eq!(second_of_day("today"), None);
    }
}
