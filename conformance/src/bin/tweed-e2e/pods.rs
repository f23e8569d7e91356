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
