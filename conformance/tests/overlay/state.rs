//! The objects in a node's kernel, without the numbers that the kernel assigns.

use std::time::Duration;

use tweed_lab::{LabError, Netns, Snapshot, wait_until};

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
