//! The objects in a node's kernel, without the numbers that the kernel assigns.

use std::time::Duration;

use tweed_lab::{Cluster, LabError, Netns, Snapshot, wait_until};

/// A namespace's objects, which are the same when one is deleted and restored.
pub fn state(netns: &Netns) -> Result<Snapshot, LabError> {
    Snapshot::of(netns).map(Snapshot::without_identity)
}

/// [`state`] once the agent has seen all pods of the node.
pub fn settled_state(node: &Netns) -> Result<Snapshot, LabError> {
    wait_until_settled(node)?;
    state(node)
}

/// Waits until the agent has seen all pods of the node: it writes each pod's address and
/// link into the table, some time after the ADD.
pub fn wait_until_settled(node: &Netns) -> Result<(), LabError> {
    let missing = || {
        let mut missing = Vec::new();
        let table = node.sh("nft list table inet tweed")?;
        for family in ["-4", "-6"] {
            let routes = node.json(&format!("ip -j {family} route show proto 116"))?;
            for route in routes.as_array().into_iter().flatten() {
                let text = |key: &str| route[key].as_str().unwrap_or_default();
                let element = format!("{} . \"{}\"", text("dst"), text("dev"));
                if text("dev").starts_with("tw") && route["gateway"].is_null() {
                    missing.push(element);
                }
            }
        }
        missing.retain(|element| !table.contains(element));
        Ok(missing)
    };
    wait_until(
        "the agent to see all pods",
        Duration::from_secs(30),
        || match missing() {
            Ok(missing) if missing.is_empty() => Ok(()),
            Ok(missing) => Err(missing.join(", ")),
            Err::<_, LabError>(error) => Err(error.to_string()),
        },
    )
}

/// Waits until the namespace has this state. The limit is below the agent's longest
/// resync period, so that the damage was noticed by an event.
pub fn wait_for_state(netns: &Netns, desired: &Snapshot) -> Result<(), LabError> {
    wait_until(
        "the kernel to have the same objects as before",
        Duration::from_secs(12),
        || match state(netns).map(|now| desired.changes(&now)) {
            Ok(changes) if changes.is_empty() => Ok(()),
            Ok(changes) => Err(changes.join("\n")),
            Err(error) => Err(error.to_string()),
        },
    )
}

/// Waits until what `/readyz` of node `index` answers is as it is expected.
pub fn wait_for_readyz(
    cluster: &Cluster,
    index: u8,
    what: &str,
    is_expected: impl Fn(u16, &str) -> bool,
) -> Result<(), LabError> {
    let what = format!("/readyz of node{index} to {what}");
    wait_until(&what, Duration::from_secs(30), || {
        let agent = cluster[index].agent.as_ref().ok_or("no agent")?;
        match agent.get("/readyz") {
            Ok((code, body)) if is_expected(code, &body) => Ok(()),
            Ok((code, body)) => Err(format!("{code}: {body}")),
            Err(error) => Err(error.chain()),
        }
    })
}
