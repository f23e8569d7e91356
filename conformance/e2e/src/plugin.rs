//! The plugin called by hand in a node, as the runtime would.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tweed_lab_kubernetes::Machine;

/// Where the agent puts the config for runtimes.
const CONFLIST: &str = "/etc/cni/net.d/10-tweed.conflist";

/// What STATUS says: nothing if new pods are served, or else the error.
pub fn status(node: &Machine) -> Result<Option<Value>> {
    answer(node, "STATUS", "")
}

/// What ADD says of a namespace with nothing in it; it is taken away again.
pub fn add(node: &Machine) -> Result<Option<Value>> {
    let netns = "by-hand";
    node.sh(&format!("ip netns add {netns}"))?;
    let variables = format!(
        "CNI_CONTAINERID={netns} CNI_NETNS=/run/netns/{netns} CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin"
    );
    let added = answer(node, "ADD", &variables);
    let deleted = answer(node, "DEL", &variables);
    node.sh(&format!("ip netns delete {netns}"))?;
    deleted?;
    added
}

/// Calls the first plugin of the list; the error that it answers, if any.
fn answer(node: &Machine, verb: &str, variables: &str) -> Result<Option<Value>> {
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

/// What a runtime makes of the list for its first plugin.
fn config(node: &Machine) -> Result<Value> {
    let file = node.own(CONFLIST);
    let text = fs::read(&file).with_context(|| file.display().to_string())?;
    let list: Value = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
    let mut config = list["plugins"][0].clone();
    config["name"] = list["name"].clone();
    config["cniVersion"] = json!("1.1.0");
    Ok(config)
}
