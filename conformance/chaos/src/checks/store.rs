//! The store has a live record for each attached pod, and a claim for each address of
//! these records, and nothing else: no address is leaked, none is claimed twice.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

use super::differences;
use crate::plan::NodePlan;

/// What is wrong with the store of a node.
pub fn problems(folder: &Path, node: &NodePlan) -> Vec<String> {
    let mut claims = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<IpAddr>().is_ok() {
            let record = fs::read_link(entry.path()).unwrap_or_default();
            claims.insert(format!("{name} -> {}", record.display()));
        }
    }
    let mut records = BTreeSet::new();
    let mut claimed = BTreeSet::new();
    for entry in fs::read_dir(folder.join("attachments"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        let cidrs = record["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = cidrs
            .filter_map(Value::as_str)
            .map(|cidr| cidr.split('/').next().unwrap_or(cidr))
            .collect();
        for address in &addresses {
            claimed.insert(format!("{address} -> attachments/{name}"));
        }
        let state = record["state"]["is"].as_str().unwrap_or("unreadable");
        let link = record["link"].as_str().unwrap_or_default();
        records.insert(format!("{state} {link} {}", addresses.join(" ")));
    }
    let expected = node.pods.iter().map(|pod| {
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        format!("live {} {}", pod.link, addresses.join(" "))
    });
    let mut found = differences("record", expected.collect(), records);
    found.extend(differences("claim", claimed, claims));
    found
}
