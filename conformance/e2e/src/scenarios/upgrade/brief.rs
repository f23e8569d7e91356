//! What is asked of pods that are made by one version and deleted by another.

use std::time::Duration;

use anyhow::{Result, ensure};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::Machine;

use crate::place::Place;
use crate::stage::Stage;

/// For what a DEL leaves to be gone: the link is, within a second.
const GONE_LIMIT: Duration = Duration::from_secs(30);

/// Pings there and back.
pub fn reach(one: &Place, other: &Place) -> Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        from.ping(to, 3)?;
    }
    Ok(())
}

/// Deletes a pod and waits until its node has nothing of it any more: no link, no
/// route, no record.
pub fn delete(stage: &Stage<'_>, pod: &Place, node: &Machine) -> Result<()> {
    let Place { name, address, .. } = pod;
    let look = format!(
        "ip -o link | grep '/{name}$'; ip route | grep '^{address} '; \
         grep -ls '\"name\": *\"{name}\"' /run/tweed/ipam/*/attachments/*; true"
    );
    let there = node.sh(&look)?;
    ensure!(
        there.lines().count() == 3,
        "of {name} there should be a link, a route and a record on {}: {there:?}",
        node.name()
    );
    stage.sh(&format!("delete pod {name}"))?;
    let what = format!("the end of {name} on {}", node.name());
    wait_until(&what, GONE_LIMIT, || {
        match node.sh(&look).map_err(|e| e.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}
