//! Installation of tweed in a cluster without a network, by one command.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{Precondition, Scenario};
use crate::fixture::Fixture;

pub const SCENARIO: Scenario = Scenario {
    name: "install",
    shows: "one kubectl apply makes all nodes Ready, and a pod starts on each",
    precondition: Precondition::NoNetwork,
    run,
};

/// Maximum time until the pods are Ready; the nodes have their image already.
const POD_LIMIT: Duration = Duration::from_secs(180);

/// One pod on every node, the tainted one included.
const PODS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: everywhere }
spec:
  selector: { matchLabels: { app: everywhere } }
  template:
    metadata: { labels: { app: everywhere } }
    spec:
      tolerations: [{ operator: Exists }]
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: localhost/agnhost:lab
          args: [netexec]
          readinessProbe: { httpGet: { path: /healthz, port: 8080 }, periodSeconds: 1, timeoutSeconds: 20 }
"#;

fn run(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    let nodes = fixture.cluster.nodes().count();
    let took = fixture.cluster.install_tweed()?;
    fixture.measure_time("from the command to all nodes Ready", took);

    fixture.apply(PODS)?;
    let started = Instant::now();
    fixture.wait_all_ready("app=everywhere", nodes, POD_LIMIT)?;
    fixture.measure_time("from then to a Ready pod on each", started.elapsed());

    let mut most = 0;
    for node in fixture.cluster.nodes() {
        let kilobytes = node.resident_kilobytes("tweed-agent")?;
        ensure!(kilobytes > 0, "no tweed-agent runs on {}", node.name());
        most = most.max(kilobytes);
    }
    let megabytes = format!("{}.{} MiB", most / 1024, most % 1024 * 10 / 1024);
    fixture.measure("memory of the agent, resident, at most", megabytes);
    Ok(())
}
