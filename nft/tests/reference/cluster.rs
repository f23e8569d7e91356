//! The objects of a cluster as an API server gives them out, and what a proxy is told besides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tweed_core::object::{Event, ObjectKey};
use tweed_watch::Kind;

/// A cluster as one of its nodes sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub node_name: String,
    /// The addresses of this node; the first one of each family is its primary one.
    pub node_ips: Vec<IpAddr>,
    pub zone: String,
    pub cluster_cidrs: Vec<String>,
    pub service_cidrs: Vec<String>,
    /// Where node ports are: in networks, and at the primary addresses if one is `primary`;
    /// none is everywhere.
    pub node_port_addresses: Vec<String>,
    /// Whether `spec.externalIPs` counts; with kube-proxy it always does.
    pub external_ips: bool,
    pub services: Vec<Value>,
    pub slices: Vec<Value>,
}

/// Decodes an object as a watch would.
pub fn object<K: Kind>(value: &Value) -> K
where
    K::Fields: DeserializeOwned,
{
    let fields = serde_json::from_value(value.clone()).unwrap();
    K::from_fields(fields).unwrap()
}

/// The events of a watch that has changed these objects.
pub fn changed<K: Kind>(old: &[Value], new: &[Value]) -> Vec<Event<K>> {
    let (changed, removed) = change(old, new);
    let deletions = removed.iter().map(|name| {
        let (namespace, name) = name.split_once('/').unwrap();
        Event::Delete(ObjectKey {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        })
    });
    let updates = changed.into_iter().map(|one| Event::Apply(object(one)));
    deletions.chain(updates).collect()
}

/// The events of a list of these objects.
pub fn listed<K: Kind>(values: &[Value]) -> Vec<Event<K>> {
    let mut events = vec![Event::Init];
    events.extend(values.iter().map(|one| Event::InitApply(object(one))));
    events.push(Event::InitDone);
    events
}

/// The namespace and name of an object.
pub fn name(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap();
    format!("{}/{}", text("namespace"), text("name"))
}

/// What was added or changed, and the names of what was removed.
pub fn change<'a>(old: &'a [Value], new: &'a [Value]) -> (Vec<&'a Value>, Vec<String>) {
    let by_name = |objects: &'a [Value]| -> BTreeMap<String, &'a Value> {
        objects.iter().map(|one| (name(one), one)).collect()
    };
    let (old, new) = (by_name(old), by_name(new));
    let changed = new
        .iter()
        .filter(|(name, one)| old.get(*name) != Some(*one))
        .map(|(_, one)| *one);
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    (changed.collect(), removed.cloned().collect())
}
