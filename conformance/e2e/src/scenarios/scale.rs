//! Many pods come and go under traffic: no address twice, none left behind.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tweed_lab_kubernetes::Machine;

use super::{Begins, Scenario, Tier};
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::{accounts, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "scale",
    shows: "many pods come and go under traffic: no address twice, none left behind",
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
        let tweed = come(stage, &workers, all)?;
        accounts::settle(stage).with_context(|| format!("round {round}, with all pods"))?;
        let took = scale_to(stage, 0)?;
        let what = format!("round {round}: all of them gone");
        stage.measure(&what, format!("{:.1} s", took.as_secs_f64()));
        accounts::settle(stage).with_context(|| format!("round {round}, with all pods gone"))?;

        let bridge = with_bridge(stage, &workers, all)?;
        accounts::settle(stage).with_context(|| format!("round {round}, after bridge"))?;
        let what = format!("round {round}: {all} pods Ready, {pods} a node");
        let [one, two] = [&tweed, &bridge].map(|took| took.all.as_secs_f64());
        stage.measure(&what, format!("tweed {one:.1} s, bridge {two:.1} s"));
        let what = format!("round {round}: a pod's sandbox with its network, mean, by kubelet");
        let [one, two] = [&tweed, &bridge].map(|took| took.sandbox.as_millis());
        stage.measure(&what, format!("tweed {one} ms, bridge {two} ms"));
    }
    let total = traffic.stop().context("the traffic beside it")?;
    let what = format!(
        "pings lost beside it, of {} between two pods",
        total.answered
    );
    stage.measure(&what, "0");
    Ok(())
}

/// How long it took to make pods.
struct Took {
    /// Until all of them were Ready.
    all: Duration,
    /// The mean for one pod's sandbox, its network included.
    sandbox: Duration,
}

/// Makes all pods.
fn come(stage: &Stage<'_>, workers: &[String], all: usize) -> anyhow::Result<Took> {
    let before = Sandboxes::made(stage, workers)?;
    let took = scale_to(stage, all)?;
    let sandbox = Sandboxes::made(stage, workers)?.mean_since(&before);
    Ok(Took {
        all: took,
        sandbox: sandbox.context("kubelet has counted no sandbox")?,
    })
}

/// Makes the same pods with the reference plugin `bridge` on the same nodes, and
/// takes them away again.
fn with_bridge(stage: &mut Stage<'_>, workers: &[String], all: usize) -> anyhow::Result<Took> {
    let mut files = Vec::new();
    for (index, name) in workers.iter().enumerate() {
        let folder = stage.cluster.node(name)?.own("/etc/cni/net.d");
        let file = folder.join(REFERENCE);
        let config = reference(index).to_string();
        fs::write(&file, config).with_context(|| file.display().to_string())?;
        files.push(file);
    }
    let took = come(stage, workers, all);
    let took = stage.witness(took);
    // Each pod goes by the way it came.
    let gone = scale_to(stage, 0);
    for file in &files {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    let took = took?;
    gone?;
    for name in workers {
        // Nobody else takes it away.
        stage.cluster.node(name)?.sh("ip link del reference0")?;
    }
    Ok(took)
}

/// What kubelets have counted of the sandboxes that they had made.
#[derive(Debug, Default, PartialEq)]
struct Sandboxes {
    count: f64,
    seconds: f64,
}

impl Sandboxes {
    /// On all of these nodes, since each kubelet's start.
    fn made(stage: &Stage<'_>, nodes: &[String]) -> anyhow::Result<Self> {
        let mut made = Self::default();
        for node in nodes {
            let line = format!("get --raw /api/v1/nodes/{node}/proxy/metrics");
            made.add(&stage.kubectl().sh(&line)?);
        }
        Ok(made)
    }

    /// Adds what one kubelet tells, in Prometheus' text format. Not by the metric
    /// `kubelet_run_podsandbox_duration_seconds`, which is always 0.
    fn add(&mut self, metrics: &str) {
        const NAME: &str = "kubelet_runtime_operations_duration_seconds_";
        const OPERATION: &str = "operation_type=\"run_podsandbox\"";
        for line in metrics.lines().filter(|line| line.contains(OPERATION)) {
            let value = line.split_whitespace().last().and_then(|v| v.parse().ok());
            let (Some(part), Some(value)) = (line.strip_prefix(NAME), value) else {
                continue;
            };
            let value: f64 = value;
            if part.starts_with("sum") {
                self.seconds += value;
            } else if part.starts_with("count") {
                self.count += value;
            }
        }
    }

    /// The mean of those since then; none if there are none.
    fn mean_since(&self, before: &Self) -> Option<Duration> {
        let mean = (self.seconds - before.seconds) / (self.count - before.count);
        // Not a number where nothing was counted.
        Duration::try_from_secs_f64(mean).ok()
    }
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

    const METRICS: &str = r#"
# TYPE kubelet_runtime_operations_duration_seconds histogram
kubelet_runtime_operations_duration_seconds_bucket{operation_type="run_podsandbox",le="0.5"} 3
kubelet_runtime_operations_duration_seconds_sum{operation_type="run_podsandbox"} 1.5
kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"} 4
kubelet_runtime_operations_duration_seconds_sum{operation_type="stop_podsandbox"} 9.5
kubelet_runtime_operations_duration_seconds_count{operation_type="stop_podsandbox"} 2
kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 7
"#;

    #[test]
    fn the_mean_is_of_the_sandboxes_made_meanwhile() {
        let mut before = Sandboxes::default();
        before.add(METRICS);
        let told = Sandboxes {
            count: 4.0,
            seconds: 1.5,
        };
        assert_eq!(before, told);
        let after = Sandboxes {
            count: 14.0,
            seconds: 4.0,
        };
        let mean = after.mean_since(&before).unwrap();
        assert_eq!(mean, Duration::from_millis(250));
        assert_eq!(before.mean_since(&told), None);
    }
}
