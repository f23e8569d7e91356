//! What is asked of pods that are made by one version and deleted by another.

use std::time::Duration;

use anyhow::Result;
use tweed_lab::kubernetes::Machine;
use tweed_lab::wait_until;

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

/// Deletes a pod and waits until its node has nothing of it any more.
pub fn delete(stage: &Stage<'_>, pod: &Place, node: &Machine) -> Result<()> {
    let Place { name, address, .. } = pod;
    stage.sh(&format!("delete pod {name}"))?;
    let look = format!(
        "ip -o link | grep '/{name}$'; ip route | grep '^{address} '; \
         grep -l '\"name\":\"{name}\"' /run/tweed/ipam/*/attachments/* 2>/dev/null; true"
    );
    let what = format!("the end of {name} on {}", node.name());
    wait_until(&what, GONE_LIMIT, || {
        match node.sh(&look).map_err(|e| e.chain())? {
            left if left.trim().is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}
