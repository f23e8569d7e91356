//! The pods of tweed's DaemonSet.

use std::time::Duration;

use anyhow::Result;

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
