//! Compares what API, runtime, address store and kernel say about the pods of each
//! node. When no change is in progress, all four are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tweed_lab_kubernetes::Machine;

use crate::fixture::Fixture;

/// The plugin's folder of records and claims.
const STORE: &str = "/run/tweed/ipam/tweed";

/// Maximum time until all are equal. kubelet and runtime wait for tens of seconds
/// before they repeat a failed operation.
const LIMIT: Duration = Duration::from_secs(180);

/// The pods of one node according to the API.
#[derive(Debug, Default)]
struct Expected {
    /// The addresses of pods that have their own network.
    addresses: BTreeSet<String>,
    /// The number of all pods, including those in the node's network.
    pods: usize,
}

/// Waits until on every node the pods of the API, the sandboxes of the runtime, the
/// store's records and claims, and the kernel's links and routes are the same, and no
/// two pods have the same address.
pub fn wait_until_equal(fixture: &Fixture<'_>) -> Result<()> {
    let what = "API, runtime, store, routes and links to agree";
    fixture.kubectl().wait_for(what, LIMIT, || {
        compare(fixture).map_err(|error| format!("{error:#}"))
    })?;
    Ok(())
}

/// The records in a node's store.
pub fn records(node: &Machine) -> Result<Vec<Value>> {
    // A record may be deleted while it is read.
    let texts = node.sh(&format!(
        "find {STORE}/attachments -type f ! -name '.*' -exec cat {{}} + 2>/dev/null || true"
    ))?;
    let documents = serde_json::Deserializer::from_str(&texts).into_iter();
    let records = documents.collect::<Result<_, _>>();
    records.with_context(|| format!("{}: {texts}", node.name()))
}

fn compare(fixture: &Fixture<'_>) -> Result<()> {
    let mut by_node: BTreeMap<String, Expected> = BTreeMap::new();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for pod in fixture.kubectl().list("pods --all-namespaces")? {
        let has_ended = ["Succeeded", "Failed"].map(Value::from);
        let Some(node) = pod["spec"]["nodeName"].as_str() else {
            continue;
        };
        if has_ended.contains(&pod["status"]["phase"]) {
            continue;
        }
        let expected = by_node.entry(node.to_owned()).or_default();
        expected.pods += 1;
        if pod["spec"]["hostNetwork"] == true {
            continue;
        }
        let name = &pod["metadata"]["name"];
        let pod_ip = pod["status"]["podIP"].as_str();
        let address = pod_ip.with_context(|| format!("{name} on {node} has no address"))?;
        expected.addresses.insert(address.to_owned());
        let owner = format!("{name} on {node}");
        if let Some(other) = owners.insert(address.to_owned(), owner.clone()) {
            bail!("{other} and {owner} both have {address}");
        }
    }
    for node in fixture.cluster.nodes() {
        let expected = by_node.remove(node.name()).unwrap_or_default();
        compare_with(node, &expected).with_context(|| node.name().to_owned())?;
    }
    Ok(())
}

fn compare_with(node: &Machine, expected: &Expected) -> Result<()> {
    let records = records(node)?;
    if let Some(record) = records.iter().find(|one| one["state"]["is"] != "live") {
        bail!("a record is not live: {record}");
    }
    let recorded = |pointer: &str| -> BTreeSet<&str> {
        let values = records.iter().filter_map(|record| record.pointer(pointer));
        values.filter_map(Value::as_str).collect()
    };
    let of_records: BTreeSet<String> = recorded("/addresses/0")
        .iter()
        .map(|address| without(address, '/'))
        .collect();
    let claims = lines(node, &format!("find {STORE} -type l -printf '%f\\n'"))?;
    let routes = lines(node, "ip route show proto 116 scope link | cut -d ' ' -f 1")?;
    for (what, has) in [
        ("the store's records", of_records),
        ("the store's claims", claims),
        ("the kernel's routes", routes),
    ] {
        ensure!(
            has == expected.addresses,
            "{what} have {has:?}, the API has {:?}",
            expected.addresses
        );
    }

    let names = lines(node, "ip -brief link show group 116 | cut -d ' ' -f 1")?;
    let links: BTreeSet<String> = names.iter().map(|link| without(link, '@')).collect();
    let recorded_links = recorded("/link");
    ensure!(
        links
            .iter()
            .map(String::as_str)
            .eq(recorded_links.iter().copied()),
        "the kernel has the links {links:?}, the store's records {recorded_links:?}"
    );
    // By name: whoever deletes several moves them into a group of any number before.
    let mut leaving = lines(node, "ip -brief link show")?;
    leaving.retain(|link| link.starts_with("twx"));
    ensure!(
        leaving.is_empty(),
        "these links are not deleted yet: {leaving:?}"
    );

    // Namespaces without a record are not an error: containerd 2.2 leaves one if it is
    // killed before it has saved its name. No link leads to such a namespace.
    let namespaces = lines(node, "ls -d /var/run/netns/* 2>/dev/null || true")?;
    let lost: Vec<&str> = recorded("/netns")
        .into_iter()
        .filter(|path| !namespaces.contains(*path))
        .collect();
    ensure!(
        lost.is_empty(),
        "records of namespaces that do not exist: {lost:?}"
    );
    let sandboxes = sandboxes(node)?;
    ensure!(
        sandboxes.len() == expected.pods,
        "the runtime has {} sandboxes, the API {} pods",
        sandboxes.len(),
        expected.pods
    );
    let without_sandbox: Vec<&str> = recorded("/containerId")
        .into_iter()
        .filter(|id| !sandboxes.contains(*id))
        .collect();
    ensure!(
        without_sandbox.is_empty(),
        "records of sandboxes that do not run: {without_sandbox:?}"
    );
    Ok(())
}

/// The running sandboxes.
fn sandboxes(node: &Machine) -> Result<BTreeSet<String>> {
    let filter = "labels.\"io.cri-containerd.kind\"==sandbox";
    let all = node.ctr(&["containers", "list", "--quiet", filter])?;
    let tasks = node.ctr(&["tasks", "list"])?;
    let running: BTreeSet<&str> = tasks
        .lines()
        .filter_map(|task| task.trim_end().strip_suffix("RUNNING"))
        .filter_map(|task| task.split_whitespace().next())
        .collect();
    let of_pods = all.lines().filter(|id| running.contains(id));
    Ok(of_pods.map(str::to_owned).collect())
}

fn lines(node: &Machine, command: &str) -> Result<BTreeSet<String>> {
    Ok(node.sh(command)?.lines().map(str::to_owned).collect())
}

/// The part before `mark`.
fn without(text: &str, mark: char) -> String {
    text.split(mark).next().unwrap_or(text).to_owned()
}
