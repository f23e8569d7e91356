//! Idle pods, which tests use for their network.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// Maximum time until a pod is Ready.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// Starts a pod on a node and waits until it is Ready.
pub fn start(fixture: &Fixture<'_>, name: &str, node: &str) -> Result<Endpoint> {
    fixture.apply(&pod(name, node).to_string())?;
    Endpoint::pod(&fixture.wait_ready(name, READY_LIMIT)?)
}

/// Starts a pod `<prefix>-<node>` on every node, and waits until all are Ready.
pub fn start_on_all(fixture: &Fixture<'_>, prefix: &str) -> Result<Vec<Endpoint>> {
    let nodes = fixture.cluster.nodes();
    let named = nodes.map(|node| (format!("{prefix}-{}", node.name()), node.name()));
    let placed: Vec<(String, &str)> = named.collect();
    let pods: Vec<Value> = placed.iter().map(|(name, node)| pod(name, node)).collect();
    let all = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    fixture.apply(&all.to_string())?;
    placed
        .iter()
        .map(|(name, _)| Endpoint::pod(&fixture.wait_ready(name, READY_LIMIT)?))
        .collect()
}

/// The manifest of such a pod.
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

/// A Deployment of such pods, which the scheduler assigns as this field of theirs says.
pub fn deployment(name: &str, replicas: usize, (field, place): (&str, Value)) -> Value {
    let mut pod = json!({
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "containers": [{ "name": "pause", "image": "registry.k8s.io/pause:3.10.1" }],
    });
    pod[field] = place;
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}
