//! The runtime is killed after an ADD and before it has written down what the
//! ADD answered.
//!
//! containerd then finds a sandbox of which it knows the namespace and no
//! network: it takes the namespace away and calls no DEL. What is left is a live
//! record whose link has gone with the namespace, which is for the agent to
//! sweep.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Component, Machine};

use crate::stage::Stage;
use crate::{accounts, pods};

const LIMIT: Duration = Duration::from_secs(120);

/// Wins over tweed's config by its name.
const CONFIG: &str = "/etc/cni/net.d/00-caught.conflist";

/// A plugin that comes last in the chain, and does not answer an ADD: it writes
/// the container's ID down and waits until that file is gone.
const PLUGIN: &str = "/opt/cni/bin/caught";
const PLUGIN_TEXT: &str = r#"#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
ADD)
    echo "$CNI_CONTAINERID" >/run/caught
    while [ -e /run/caught ]; do sleep 0.1; done
    exit 1
    ;;
esac
"#;

/// Kills the runtime while it waits for that plugin. The pod has to come, the
/// first attempt's address to become free.
pub fn run(stage: &mut Stage<'_>, worker: &str) -> Result<()> {
    let node = stage.cluster.node(worker)?;
    chain(node)?;
    let caught = catch(stage, node);
    // Whatever has come of it, the node is as it was.
    let released = release(node);
    let address = caught?;
    released?;
    let start = Instant::now();
    stage.wait_ready("caught", LIMIT)?;
    accounts::settle(stage)
        .context("after the runtime was killed between an ADD and its record")?;
    let took = start.elapsed().as_secs_f64();
    stage.measure(
        &format!("runtime killed between an ADD and its record: {address} free again after"),
        format!("{took:.1} s"),
    );
    stage.sh("delete pod caught")?;
    Ok(())
}

/// Puts the plugin at the end of tweed's chain.
fn chain(node: &Machine) -> Result<()> {
    let plugin = node.own(PLUGIN);
    let failed = || format!("write {}", plugin.display());
    fs::write(&plugin, PLUGIN_TEXT).with_context(failed)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).with_context(failed)?;
    let tweed = node.own("/etc/cni/net.d/10-tweed.conflist");
    let text = fs::read(&tweed).with_context(|| tweed.display().to_string())?;
    let mut list: Value = serde_json::from_slice(&text).context("10-tweed.conflist")?;
    let plugins = list["plugins"].as_array_mut();
    let plugins = plugins.context("10-tweed.conflist has no plugins")?;
    plugins.push(json!({ "type": "caught" }));
    // The runtime reads it as soon as it is there, so it is there whole.
    let draft = node.own("/etc/cni/net.d/caught.draft");
    fs::write(&draft, list.to_string()).with_context(|| draft.display().to_string())?;
    fs::rename(&draft, node.own(CONFIG)).context(CONFIG)
}

/// Kills the runtime; the address that the ADD has given.
fn catch(stage: &Stage<'_>, node: &Machine) -> Result<String> {
    stage.apply(&pods::pod("caught", node.name()).to_string())?;
    let id = wait_until("an ADD that is done, and not answered", LIMIT, || {
        let id = node.sh("cat /run/caught").map_err(|error| error.chain())?;
        let id = id.trim().to_owned();
        (!id.is_empty()).then_some(id).ok_or_else(String::new)
    })?;
    node.stop(Component::Containerd, Signal::SIGKILL)?;
    let records = accounts::records(node)?;
    let record = records.iter().find(|record| record["containerId"] == *id);
    let record = record.with_context(|| format!("{id} has no record: {records:?}"))?;
    ensure!(record["state"]["is"] == "live", "it is not live: {record}");
    let address = record["addresses"][0].as_str();
    Ok(address.context("no address")?.to_owned())
}

/// Takes the plugin away, and starts the runtime unless it runs.
fn release(node: &Machine) -> Result<()> {
    let own: Vec<PathBuf> = [CONFIG, PLUGIN].map(|file| node.own(file)).to_vec();
    for file in own {
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    node.sh("rm -f /run/caught")?;
    if node.check().is_err() {
        node.start(Component::Containerd)?;
    }
    Ok(())
}
