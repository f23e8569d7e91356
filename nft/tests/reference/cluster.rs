//! The objects of a cluster as an API server gives them out, and what a proxy is told besides.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tweed_core::object::Event;
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
    /// Where node ports are; none is everywhere.
    pub node_port_addresses: Vec<String>,
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

/// The events of a list of these objects.
pub fn listed<K: Kind>(values: &[Value]) -> Vec<Event<K>> {
    let mut events = vec![Event::Init];
    events.extend(values.iter().map(|one| Event::InitApply(object(one))));
    events.push(Event::InitDone);
    events
}
