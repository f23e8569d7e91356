//! The runtime is killed after an ADD, before it has saved the result.
//!
//! containerd then has a sandbox with a namespace and without a network: it deletes the
//! namespace and calls no DEL. The record in the store stays live, its link is deleted
//! with the namespace, and the agent has to free the address.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Component, Machine};

use crate::fixture::Fixture;
use crate::{consistency, pods};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// A config whose name sorts before tweed's, so that the runtime uses it.
const CONFIG: &str = "/etc/cni/net.d/00-blocked.conflist";

/// The last plugin of the chain, which blocks an ADD: it writes the container ID to a
/// file and waits until that file is deleted.
const PLUGIN: &str = "/opt/cni/bin/blocked";
const PLUGIN_TEXT: &str = r#"#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
ADD)
    echo "$CNI_CONTAINERID" >/run/blocked
    while [ -e /run/blocked ]; do sleep 0.1; done
    exit 1
    ;;
esac
"#;

/// Kills the runtime while it waits for that plugin. The pod must start afterwards, and
/// the address of the first attempt must be freed.
pub fn run(fixture: &mut Fixture<'_>, worker: &str) -> Result<()> {
    let node = fixture.cluster.node(worker)?;
    install_plugin(node)?;
    let killed = kill_runtime(fixture, node);
    // Restored also after a failure.
    let removed = remove_plugin(node);
    let address = killed?;
    removed?;
    let start = Instant::now();
    fixture.wait_ready("blocked", LIMIT)?;
    consistency::wait_until_equal(fixture)
        .context("after the runtime was killed before it saved the result of an ADD")?;
    let what =
        format!("runtime killed before it saved the result of an ADD: {address} free again after");
    fixture.measure_time(&what, start.elapsed());
    fixture.sh("delete pod blocked")?;
    Ok(())
}

/// Appends the plugin to tweed's chain.
fn install_plugin(node: &Machine) -> Result<()> {
    let plugin = node.host_path(PLUGIN);
    let failed = || format!("write {}", plugin.display());
    fs::write(&plugin, PLUGIN_TEXT).with_context(failed)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).with_context(failed)?;
    let tweed = node.host_path("/etc/cni/net.d/10-tweed.conflist");
    let text = fs::read(&tweed).with_context(|| tweed.display().to_string())?;
    let mut list: Value = serde_json::from_slice(&text).context("10-tweed.conflist")?;
    let listed = list["plugins"].as_array_mut();
    let plugins = listed.context("10-tweed.conflist has no plugins")?;
    plugins.push(json!({ "type": "blocked" }));
    // Renamed, because the runtime reads the file as soon as it exists.
    let draft = node.host_path("/etc/cni/net.d/blocked.draft");
    fs::write(&draft, list.to_string()).with_context(|| draft.display().to_string())?;
    fs::rename(&draft, node.host_path(CONFIG)).context(CONFIG)
}

/// Kills the runtime during the ADD; returns the address that the ADD has assigned.
fn kill_runtime(fixture: &Fixture<'_>, node: &Machine) -> Result<String> {
    fixture.apply(&pods::pod("blocked", node.name()).to_string())?;
    let id = wait_until("an ADD that waits for the last plugin", LIMIT, || {
        let text = node.sh("cat /run/blocked").map_err(|error| error.chain())?;
        let id = text.trim().to_owned();
        (!id.is_empty()).then_some(id).ok_or_else(String::new)
    })?;
    node.stop(Component::Containerd, Signal::SIGKILL)?;
    let records = consistency::records(node)?;
    let found = records.iter().find(|record| record["containerId"] == *id);
    let record = found.with_context(|| format!("{id} has no record: {records:?}"))?;
    ensure!(record["state"]["is"] == "live", "it is not live: {record}");
    let address = record["addresses"][0].as_str();
    Ok(address.context("no address")?.to_owned())
}

/// Removes the plugin, and starts the runtime if it does not run.
fn remove_plugin(node: &Machine) -> Result<()> {
    let own: Vec<PathBuf> = [CONFIG, PLUGIN].map(|file| node.host_path(file)).to_vec();
    for file in own {
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    node.sh("rm -f /run/blocked")?;
    if node.check().is_err() {
        node.start(Component::Containerd)?;
    }
    Ok(())
}
