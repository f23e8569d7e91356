//! What a node's kernel holds, without the numbers that the kernel gave it.

use std::collections::BTreeSet;
use std::time::Duration;

use tweed_lab::{LabError, Netns, Snapshot, wait_until};

/// Keys whose numbers a recreated object gets anew.
const IDENTITY: [&str; 4] = [
    "\"ifindex\":",
    "\"link_index\":",
    "\"handle\":",
    "\"index\":",
];

/// A namespace's [`Snapshot`], as lines that are the same again when an object
/// was deleted and put back.
pub fn shape(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let snapshot = Snapshot::of(netns)?.to_string();
    Ok(snapshot.lines().map(without_identity).collect())
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

/// What differs between two shapes: gone lines start with `-`, new with `+`.
pub fn difference(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    let gone = before.difference(after).map(|line| format!("- {line}"));
    let new = after.difference(before).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

/// Waits until the namespace has this shape. The limit is below the agent's
/// longest interval: what is back was noticed, not met by chance.
pub fn wait_for_shape(netns: &Netns, wanted: &BTreeSet<String>) -> Result<(), LabError> {
    wait_until(
        "the kernel to hold what it held before",
        Duration::from_secs(12),
        || match shape(netns).map(|now| difference(wanted, &now)) {
            Ok(changes) if changes.is_empty() => Ok(()),
            Ok(changes) => Err(changes.join("\n")),
            Err(error) => Err(error.to_string()),
        },
    )
}
