//! Direct calls of the plugin in a node, with the input of a runtime.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tweed_lab_kubernetes::Machine;

/// The config that the agent writes for runtimes.
const CONFLIST: &str = "/etc/cni/net.d/10-tweed.conflist";

/// The error of STATUS; `None` if new pods are served.
pub fn status(node: &Machine) -> Result<Option<Value>> {
    call(node, "STATUS", "")
}

/// The error of an ADD for a new, empty namespace, which is deleted again.
pub fn add(node: &Machine) -> Result<Option<Value>> {
    let netns = "by-hand";
    node.sh(&format!("ip netns add {netns}"))?;
    let variables = format!(
        "CNI_CONTAINERID={netns} CNI_NETNS=/run/netns/{netns} CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin"
    );
    let added = call(node, "ADD", &variables);
    let deleted = call(node, "DEL", &variables);
    node.sh(&format!("ip netns delete {netns}"))?;
    deleted?;
    added
}

/// Calls the first plugin of the list and returns its error, if any.
fn call(node: &Machine, verb: &str, variables: &str) -> Result<Option<Value>> {
    let config = config(node)?;
    let line = format!(
        "printf %s '{config}' | CNI_COMMAND={verb} {variables} /opt/cni/bin/tweed 2>/dev/null || true"
    );
    let text = node.sh(&line)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let answer: Value = serde_json::from_str(&text).context(text)?;
    Ok(answer["code"].is_number().then_some(answer))
}

/// The config that a runtime passes to the first plugin of the list.
fn config(node: &Machine) -> Result<Value> {
    let file = node.host_path(CONFLIST);
    let text = fs::read(&file).with_context(|| file.display().to_string())?;
    let list: Value = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
    let mut config = list["plugins"][0].clone();
    config["name"] = list["name"].clone();
    config["cniVersion"] = json!("1.1.0");
    Ok(config)
}
