//! Pods that only are there: what is of interest is their network.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::place::Place;
use crate::stage::Stage;

const READY_LIMIT: Duration = Duration::from_secs(180);

/// Starts such a pod on a node and waits until it is Ready.
pub fn start(stage: &Stage<'_>, name: &str, node: &str) -> Result<Place> {
    stage.apply(&pod(name, node).to_string())?;
    Place::pod(&stage.wait_ready(name, READY_LIMIT)?)
}

/// Starts such a pod on every node, `<prefix>-<node>`, and waits until all are
/// Ready.
pub fn start_on_all(stage: &Stage<'_>, prefix: &str) -> Result<Vec<Place>> {
    let nodes = stage.cluster.nodes();
    let nodes = nodes.map(|node| (format!("{prefix}-{}", node.name()), node.name()));
    let nodes: Vec<(String, &str)> = nodes.collect();
    let pods: Vec<Value> = nodes.iter().map(|(name, node)| pod(name, node)).collect();
    let all = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    stage.apply(&all.to_string())?;
    nodes
        .iter()
        .map(|(name, _)| Place::pod(&stage.wait_ready(name, READY_LIMIT)?))
        .collect()
}

/// Such a pod, to be applied.
pub fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "pause", "image": "localhost/agnhost:lab" }],
        },
    })
}
