//! Checks of pods that one version creates and another deletes.

use std::time::Duration;

use anyhow::{Result, ensure};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::Machine;

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// Maximum time until nothing of a deleted pod is left; its link is deleted within 1 s.
const GONE_LIMIT: Duration = Duration::from_secs(30);

/// Pings in both directions.
pub fn ping_both_ways(one: &Endpoint, other: &Endpoint) -> Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        from.ping(to, 3)?;
    }
    Ok(())
}

/// Deletes a pod and waits until its node has no link, no route and no record of it.
pub fn delete(fixture: &Fixture<'_>, pod: &Endpoint, node: &Machine) -> Result<()> {
    let Endpoint { name, address, .. } = pod;
    let look = format!(
        "ip -o link | grep '/{name}$'; ip route | grep '^{address} '; \
         grep -ls '\"name\": *\"{name}\"' /run/tweed/ipam/*/attachments/*; true"
    );
    let found = node.sh(&look)?;
    ensure!(
        found.lines().count() == 3,
        "{name} must have a link, a route and a record on {}: {found:?}",
        node.name()
    );
    fixture.sh(&format!("delete pod {name}"))?;
    let what = format!(
        "link, route and record of {name} on {} to be removed",
        node.name()
    );
    wait_until(&what, GONE_LIMIT, || {
        match node.sh(&look).map_err(|e| e.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}
