//! Compares each node's routes, neighbours and FDB entries, as iproute2 prints them,
//! with the Nodes of the API and the MACs of the other nodes' devices.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab_kubernetes::{Cluster, Machine};

/// tweed's VXLAN device, on every node.
const DEVICE: &str = "tweed.1";

/// Maximum time until all nodes are correct; long enough for a machine that compiles
/// at the same time.
const LIMIT: Duration = Duration::from_secs(60);

/// A node with a pod CIDR.
struct Peer {
    name: String,
    pod_cidr: String,
    address: String,
    mac: String,
}

/// Waits until every node has exactly the routes, neighbours and FDB entries of the
/// other nodes, and none of a removed node.
pub fn wait_until_correct(cluster: &Cluster) -> Result<()> {
    let what = "routes, neighbours and FDB entries of all nodes to be correct";
    cluster.kubectl().wait_for(what, LIMIT, || {
        check(cluster).map_err(|error| format!("{error:#}"))
    })?;
    Ok(())
}

fn check(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.kubectl().list("nodes")?;
    let peers = nodes
        .iter()
        .filter(|node| node["spec"]["podCIDR"].is_string())
        .map(|node| Peer::of(cluster, node))
        .collect::<Result<Vec<Peer>>>()?;
    for Peer { name, .. } in &peers {
        let others = peers.iter().filter(|peer| peer.name != *name);
        let lines = others.map(Peer::lines).collect::<Result<Vec<_>>>()?;
        let desired: BTreeSet<String> = lines.into_iter().flatten().collect();
        let actual = actual_lines(cluster.node(name)?)?;
        ensure!(
            actual == desired,
            "{name} lacks {:?} and has in addition {:?}",
            desired.difference(&actual).collect::<Vec<_>>(),
            actual.difference(&desired).collect::<Vec<_>>(),
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

    /// Its route, neighbour and FDB entry on other nodes, one line each.
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

/// The same lines for everything that a node has.
fn actual_lines(node: &Machine) -> Result<BTreeSet<String>> {
    let rows = |command: &str, line: &dyn Fn(&Value) -> Result<String>| -> Result<Vec<String>> {
        let output = json(node, command)?;
        output.as_array().into_iter().flatten().map(line).collect()
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

fn json(node: &Machine, command: &str) -> Result<Value> {
    let output = node.sh(command)?;
    serde_json::from_str(&output).with_context(|| format!("{}: {command}: {output}", node.name()))
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("{pointer} is missing in {object}"))
}
