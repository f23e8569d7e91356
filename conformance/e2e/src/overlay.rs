//! What each node's kernel holds of the other nodes, by the eyes of iproute2,
//! beside what the API and the other nodes' devices say.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab_kubernetes::{Cluster, Machine};

/// tweed's VXLAN device, on every node.
const DEVICE: &str = "tweed.1";

/// For the agents to follow, on a machine that builds beside them.
const LIMIT: Duration = Duration::from_secs(60);

/// A node with a pod CIDR.
struct Peer {
    name: String,
    pod_cidr: String,
    address: String,
    mac: String,
}

/// Waits until every node has exactly the routes, neighbours and FDB entries
/// that lead to the others, and none to a node that is gone.
pub fn settle(cluster: &Cluster) -> Result<()> {
    let what = "routes, neighbours and FDB entries of all nodes to be right";
    cluster.kubectl().wait_for(what, LIMIT, || {
        look(cluster).map_err(|error| format!("{error:#}"))
    })?;
    Ok(())
}

fn look(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.kubectl().list("nodes")?;
    let peers = nodes
        .iter()
        .filter(|node| node["spec"]["podCIDR"].is_string())
        .map(|node| Peer::of(cluster, node))
        .collect::<Result<Vec<Peer>>>()?;
    for Peer { name, .. } in &peers {
        let others = peers.iter().filter(|peer| peer.name != *name);
        let wanted = others.map(Peer::lines).collect::<Result<Vec<_>>>()?;
        let wanted: BTreeSet<String> = wanted.into_iter().flatten().collect();
        let held = held_by(cluster.node(name)?)?;
        ensure!(
            held == wanted,
            "{name} lacks {:?} and has {:?} too much",
            wanted.difference(&held).collect::<Vec<_>>(),
            held.difference(&wanted).collect::<Vec<_>>(),
        );
    }
    Ok(())
}

impl Peer {
    fn of(cluster: &Cluster, node: &Value) -> Result<Self> {
        let name = text(node, "/metadata/name")?;
        let addresses = node["status"]["addresses"].as_array();
        let internal = addresses
            .and_then(|all| all.iter().find(|one| one["type"] == "InternalIP"))
            .with_context(|| format!("{name} has no InternalIP"))?;
        let link = json(cluster.node(name)?, &format!("ip -json link show {DEVICE}"))?;
        Ok(Self {
            name: name.to_owned(),
            pod_cidr: text(node, "/spec/podCIDR")?.to_owned(),
            address: text(internal, "/address")?.to_owned(),
            mac: text(&link, "/0/address")?.to_owned(),
        })
    }

    /// What leads to it, a line each.
    fn lines(&self) -> Result<[String; 3]> {
        let Self {
            pod_cidr,
            address,
            mac,
            ..
        } = self;
        let (first, _) = pod_cidr.split_once('/').context("a pod CIDR without /")?;
        Ok([
            format!("route {pod_cidr} via {first}"),
            format!("neighbour {first} is {mac}"),
            format!("fdb {mac} behind {address}"),
        ])
    }
}

/// The same lines, of what a node holds.
fn held_by(node: &Machine) -> Result<BTreeSet<String>> {
    let rows = |question: &str, line: &dyn Fn(&Value) -> Result<String>| -> Result<Vec<String>> {
        let answer = json(node, question)?;
        answer.as_array().into_iter().flatten().map(line).collect()
    };
    let route = |row: &Value| {
        let (to, via) = (text(row, "/dst")?, text(row, "/gateway")?);
        Ok(format!("route {to} via {via}"))
    };
    let neighbour = |row: &Value| {
        let (address, mac) = (text(row, "/dst")?, text(row, "/lladdr")?);
        Ok(format!("neighbour {address} is {mac}"))
    };
    let fdb = |row: &Value| {
        let (mac, behind) = (text(row, "/mac")?, text(row, "/dst")?);
        Ok(format!("fdb {mac} behind {behind}"))
    };
    let mut lines = rows(&format!("ip -json route show dev {DEVICE}"), &route)?;
    lines.extend(rows(
        &format!("ip -json neighbour show dev {DEVICE}"),
        &neighbour,
    )?);
    lines.extend(rows(&format!("bridge -json fdb show dev {DEVICE}"), &fdb)?);
    Ok(lines.into_iter().collect())
}

fn json(node: &Machine, question: &str) -> Result<Value> {
    let answer = node.sh(question)?;
    serde_json::from_str(&answer).with_context(|| format!("{}: {question}: {answer}", node.name()))
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("{pointer} is missing in {object}"))
}
