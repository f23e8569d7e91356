//! The objects in a node's kernel, without the numbers that the kernel assigns.

use std::collections::BTreeSet;
use std::time::Duration;

use tweed_lab::{LabError, Netns, Snapshot, wait_until};

/// Keys with numbers that change when an object is recreated.
const IDENTITY: [&str; 4] = [
    "\"ifindex\":",
    "\"link_index\":",
    "\"handle\":",
    "\"index\":",
];

/// A namespace's [`Snapshot`] as lines that do not change when an object is deleted and
/// restored.
pub fn state(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let snapshot = Snapshot::of(netns)?.to_string();
    Ok(snapshot.lines().map(without_identity).collect())
}

/// [`state`] once the agent has seen all pods of the node.
pub fn settled_state(node: &Netns) -> Result<BTreeSet<String>, LabError> {
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

fn without_identity(line: &str) -> String {
    let mut line = line.to_owned();
    for key in IDENTITY {
        while let Some(start) = line.find(key) {
            let rest = &line[start + key.len()..];
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            line.replace_range(start..start + key.len() + digits, "");
        }
    }
    line
}

/// The differences of two states: removed lines start with `-`, added ones with `+`.
pub fn difference(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    let removed = before.difference(after).map(|line| format!("- {line}"));
    let added = after.difference(before).map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}

/// Waits until the namespace has this state. The limit is below the agent's longest
/// resync period, so that the damage was noticed by an event.
pub fn wait_for_state(netns: &Netns, desired: &BTreeSet<String>) -> Result<(), LabError> {
    wait_until(
        "the kernel to have the same objects as before",
        Duration::from_secs(12),
        || match state(netns).map(|now| difference(desired, &now)) {
            Ok(changes) if changes.is_empty() => Ok(()),
            Ok(changes) => Err(changes.join("\n")),
            Err(error) => Err(error.to_string()),
        },
    )
}
