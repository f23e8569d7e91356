//! From nothing to Ready nodes by one command.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{Begins, Scenario};
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "install",
    shows: "from nothing to Ready nodes and a pod on each by one kubectl apply",
    begins: Begins::Bare,
    run,
};

/// For pods whose image is there already.
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

fn run(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let nodes = stage.cluster.nodes().count();
    let took = stage.cluster.install_tweed()?;
    stage.measure("from the command to all nodes Ready", seconds(took));

    stage.apply(PODS)?;
    let started = Instant::now();
    stage.wait_all_ready("app=everywhere", nodes, POD_LIMIT)?;
    stage.measure(
        "from then to a Ready pod on each",
        seconds(started.elapsed()),
    );

    let mut most = 0;
    for node in stage.cluster.nodes() {
        let kilobytes = node.resident_kilobytes("tweed-agent")?;
        ensure!(kilobytes > 0, "no tweed-agent runs on {}", node.name());
        most = most.max(kilobytes);
    }
    let megabytes = format!("{}.{} MiB", most / 1024, most % 1024 * 10 / 1024);
    stage.measure("memory of the agent, resident, at most", megabytes);
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
