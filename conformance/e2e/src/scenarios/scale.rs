//! Many pods are created and deleted under traffic: no address twice, none left.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tweed_lab_kubernetes::Machine;

use super::{Precondition, Scenario};
use crate::fixture::Fixture;
use crate::traffic::Traffic;
use crate::{consistency, pods};

pub const SCENARIO: Scenario = Scenario {
    name: "scale",
    shows: "many pods are created and deleted under traffic: no address twice, none left",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until all pods of a round are Ready or deleted.
const ROUND_LIMIT: Duration = Duration::from_secs(600);

/// A config whose name sorts before tweed's, so that the runtime uses it.
const REFERENCE: &str = "00-reference.conflist";

fn run(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    // On each node.
    let (pods, rounds) = fixture.tier.size((30, 1), (100, 3));
    let workers: Vec<String> = fixture
        .cluster
        .workers()
        .map(|w| w.name().to_owned())
        .collect();
    let all = pods * workers.len();

    let traffic = start_traffic(fixture)?;
    let place = (
        "topologySpreadConstraints",
        json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
            "labelSelector": { "matchLabels": { "app": "many" } },
        }]),
    );
    // The same number on every worker.
    fixture.apply(&pods::deployment("many", 0, place).to_string())?;
    for round in 1..=rounds {
        let tweed = create_pods(fixture, &workers, all)?;
        consistency::wait_until_equal(fixture)
            .with_context(|| format!("round {round}, with all pods"))?;
        let took = scale_to(fixture, 0)?;
        let what = format!("round {round}: all of them deleted");
        fixture.measure_time(&what, took);
        consistency::wait_until_equal(fixture)
            .with_context(|| format!("round {round}, with all pods deleted"))?;

        let bridge = with_bridge(fixture, &workers, all)?;
        consistency::wait_until_equal(fixture)
            .with_context(|| format!("round {round}, after bridge"))?;
        let what = format!("round {round}: {all} pods Ready, {pods} a node");
        let [one, two] = [&tweed, &bridge].map(|took| took.all.as_secs_f64());
        fixture.measure(&what, format!("tweed {one:.1} s, bridge {two:.1} s"));
        let what = format!("round {round}: a pod's sandbox with its network, mean, by kubelet");
        let [one, two] = [&tweed, &bridge].map(|took| took.sandbox.as_millis());
        fixture.measure(&what, format!("tweed {one} ms, bridge {two} ms"));
    }
    let total = traffic.stop().context("the traffic meanwhile")?;
    let what = format!(
        "pings lost meanwhile, of {} between two pods",
        total.answered
    );
    fixture.measure(&what, "0");
    Ok(())
}

/// The time that it took to create pods.
struct Took {
    /// Until all of them were Ready.
    all: Duration,
    /// The mean for one pod's sandbox, including its network.
    sandbox: Duration,
}

/// Creates all pods.
fn create_pods(fixture: &Fixture<'_>, workers: &[String], all: usize) -> anyhow::Result<Took> {
    let before = Sandboxes::made(fixture, workers)?;
    let took = scale_to(fixture, all)?;
    let sandbox = Sandboxes::made(fixture, workers)?.mean_since(&before);
    Ok(Took {
        all: took,
        sandbox: sandbox.context("kubelet has counted no sandbox")?,
    })
}

/// Creates and deletes the same pods with the reference plugin `bridge` on the same
/// nodes.
fn with_bridge(fixture: &mut Fixture<'_>, workers: &[String], all: usize) -> anyhow::Result<Took> {
    let mut files = Vec::new();
    for (index, name) in workers.iter().enumerate() {
        let folder = fixture.cluster.node(name)?.host_path("/etc/cni/net.d");
        let file = folder.join(REFERENCE);
        let config = reference(index).to_string();
        fs::write(&file, config).with_context(|| file.display().to_string())?;
        files.push(file);
    }
    let took = create_pods(fixture, workers, all);
    let took = fixture.report_failure(took);
    // Deleted before the config is removed, so that the same plugin gets the DELs.
    let deleted = scale_to(fixture, 0);
    for file in &files {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    let took = took?;
    deleted?;
    for name in workers {
        // The plugin does not delete its bridge.
        fixture.cluster.node(name)?.sh("ip link del reference0")?;
    }
    Ok(took)
}

/// Count and total time of the sandboxes that kubelets have created.
#[derive(Debug, Default, PartialEq)]
struct Sandboxes {
    count: f64,
    seconds: f64,
}

impl Sandboxes {
    /// The totals of these nodes since the start of each kubelet.
    fn made(fixture: &Fixture<'_>, nodes: &[String]) -> anyhow::Result<Self> {
        let mut made = Self::default();
        for node in nodes {
            let line = format!("get --raw /api/v1/nodes/{node}/proxy/metrics");
            made.add(&fixture.kubectl().sh(&line)?);
        }
        Ok(made)
    }

    /// Adds the metrics of one kubelet, in Prometheus' text format. It does not use the
    /// metric `kubelet_run_podsandbox_duration_seconds`, which is always 0.
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

    /// The mean time of those created since `before`; `None` if there are none.
    fn mean_since(&self, before: &Self) -> Option<Duration> {
        let mean = (self.seconds - before.seconds) / (self.count - before.count);
        // The quotient is not a number if none was created.
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

/// A ping between two pods on two workers.
fn start_traffic(fixture: &Fixture<'_>) -> anyhow::Result<Traffic> {
    let nodes: Vec<&Machine> = fixture.cluster.workers().collect();
    let (first, last) = nodes.first().zip(nodes.last()).context("no workers")?;
    let client = pods::start(fixture, "client", first.name())?;
    let server = pods::start(fixture, "server", last.name())?;
    Traffic::between(&[client, server])
}

/// Scales the Deployment. Returns the time until all pods were Ready or deleted.
fn scale_to(fixture: &Fixture<'_>, count: usize) -> anyhow::Result<Duration> {
    let start = Instant::now();
    fixture.sh(&format!("scale deployment many --replicas {count}"))?;
    fixture.wait_all_ready("app=many", count, ROUND_LIMIT)?;
    Ok(start.elapsed())
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
    fn the_mean_is_of_the_sandboxes_created_meanwhile() {
        let mut before = Sandboxes::default();
        before.add(METRICS);
        let expected = Sandboxes {
            count: 4.0,
            seconds: 1.5,
        };
        assert_eq!(before, expected);
        let after = Sandboxes {
            count: 14.0,
            seconds: 4.0,
        };
        let mean = after.mean_since(&before).unwrap();
        assert_eq!(mean, Duration::from_millis(250));
        assert_eq!(before.mean_since(&expected), None);
    }
}
