//! The pods of tweed's DaemonSet.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tweed_lab_kubernetes::Machine;

use crate::fixture::{AGENTS, Fixture};

/// Maximum time until agents are Ready on all nodes.
const LIMIT: Duration = Duration::from_secs(300);

/// Waits until all agents have the current template and are Ready.
pub fn wait_rolled_out(fixture: &Fixture<'_>) -> Result<()> {
    Ok(fixture.kubectl().wait_rolled_out(AGENTS, LIMIT)?)
}

/// Replaces all agents at once, which takes less time than one after the other.
pub fn restart(fixture: &Fixture<'_>) -> Result<()> {
    let line = format!(
        "delete pods --namespace kube-system --selector app.kubernetes.io/name=tweed --timeout={}s",
        LIMIT.as_secs()
    );
    fixture.kubectl().sh(&line)?;
    // The status of the DaemonSet may still be of the pods that are gone.
    let agents = "--namespace kube-system --selector app.kubernetes.io/component=agent";
    let count = fixture.cluster.nodes().count();
    fixture.kubectl().wait_all_ready(agents, count, LIMIT)?;
    wait_rolled_out(fixture)
}

/// Gives the agent's image another name on a node, where kubelet then starts no agent.
pub fn hide_image(fixture: &Fixture<'_>, node: &str, hidden: &str) -> Result<()> {
    let image = image(fixture)?;
    rename_image(fixture.cluster.node(node)?, [&image, hidden])
}

/// Gives it its own name back.
pub fn show_image(fixture: &Fixture<'_>, node: &str, hidden: &str) -> Result<()> {
    let image = image(fixture)?;
    rename_image(fixture.cluster.node(node)?, [hidden, &image])
}

fn image(fixture: &Fixture<'_>) -> Result<String> {
    let agent = fixture
        .kubectl()
        .json("get daemonset tweed --namespace kube-system")?;
    let image = &agent["spec"]["template"]["spec"]["containers"][0]["image"];
    Ok(image.as_str().context("the agent has no image")?.to_owned())
}

fn rename_image(node: &Machine, [from, to]: [&str; 2]) -> Result<()> {
    node.ctr(&["images", "tag", "--force", from, to])?;
    node.ctr(&["images", "remove", "--sync", from])?;
    Ok(())
}
