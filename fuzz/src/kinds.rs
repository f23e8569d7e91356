//! What holds of the objects of every kind, however they arrive.

use std::collections::BTreeSet;

use prost::Message as _;
use serde_json::Value;
use tweed_core::object::ObjectKey;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_watch::Kind;

use crate::nodes::{answer, runtime};

/// Calls a function for each kind but the Nodes, which have targets of their own.
macro_rules! for_each_kind {
    ($function:ident($($argument:expr),*)) => {
        $function::<Pod>($($argument),*);
        $function::<Namespace>($($argument),*);
        $function::<NetworkPolicy>($($argument),*);
        $function::<ClusterNetworkPolicy>($($argument),*);
        $function::<Service>($($argument),*);
        $function::<EndpointSlice>($($argument),*);
        $function::<ServiceCidr>($($argument),*);
    };
}

/// How a page or a watch is cut into pieces makes no difference for any kind.
pub(crate) fn check_page(protobuf: bool, body: &[u8], size: usize) {
    for_each_kind!(same_page(protobuf, body, size));
    if !protobuf && let Ok(page) = serde_json::from_slice::<Value>(body) {
        let items = page.get("items").and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            for_each_kind!(same_in_protobuf(item));
            is_not_widened(item);
            is_not_opened(item);
        }
    }
}

/// The same of a watch.
pub(crate) fn check_watch(protobuf: bool, body: &[u8], size: usize) {
    for_each_kind!(same_watch(protobuf, body, size));
}

/// The objects of each kind in a file have keys of their own.
pub(crate) fn check_file(file: &[u8]) {
    for_each_kind!(own_keys(file));
}

fn same_page<K: Kind>(protobuf: bool, body: &[u8], size: usize) {
    let runtime = runtime();
    let read = |piece| runtime.block_on(answer(protobuf, body, piece).page::<K>());
    assert_eq!(
        read(size),
        read(0),
        "{} in pieces of {size} bytes",
        K::KINDS
    );
}

fn same_watch<K: Kind>(protobuf: bool, body: &[u8], size: usize) {
    let runtime = runtime();
    let read = |piece| runtime.block_on(answer(protobuf, body, piece).watch::<K>());
    assert_eq!(
        read(size),
        read(0),
        "{} in pieces of {size} bytes",
        K::KINDS
    );
}

/// An object that is read from JSON is the same when its fields have been protobuf.
fn same_in_protobuf<K: Kind>(object: &Value) {
    let read = || serde_json::from_value::<K::Fields>(object.clone());
    let Ok(fields) = read() else {
        return;
    };
    let bytes = fields.encode_to_vec();
    let decoded = K::Fields::decode(&*bytes).expect("what was encoded is decoded");
    let fields = read().expect("as before");
    assert_eq!(K::from_fields(decoded), K::from_fields(fields));
}

/// A rule that names peers or ports, however wrong, is not one for all of them.
fn is_not_widened(object: &Value) {
    let fields = serde_json::from_value::<<NetworkPolicy as Kind>::Fields>(object.clone());
    let Some(policy) = fields
        .ok()
        .and_then(|it| NetworkPolicy::from_fields(it).ok())
    else {
        return;
    };
    for (direction, peers, rules) in [
        ("ingress", "from", &policy.ingress),
        ("egress", "to", &policy.egress),
    ] {
        let found = object.pointer(&format!("/spec/{direction}"));
        let listed = found.and_then(Value::as_array).into_iter().flatten();
        for (given, rule) in listed.zip(rules) {
            let Rule {
                peers: found,
                ports,
            } = rule;
            assert!(!names(given, peers) || !found.is_empty(), "{given}");
            assert!(!names(given, "ports") || !ports.is_empty() || !found.is_empty());
        }
    }
}

/// A Service that limits its sources, however wrong, is not one for everybody.
fn is_not_opened(object: &Value) {
    let fields = serde_json::from_value::<<Service as Kind>::Fields>(object.clone());
    let service = fields.ok().and_then(|it| Service::from_fields(it).ok());
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if names(spec, "loadBalancerSourceRanges") {
        assert!(service.is_none_or(|one| !one.source_ranges.is_empty()));
    }
}

/// Whether the field says more than that there is nothing.
fn names(rule: &Value, field: &str) -> bool {
    match rule.get(field) {
        None | Some(Value::Null) => false,
        Some(Value::Array(entries)) => !entries.is_empty(),
        Some(_) => true,
    }
}

fn own_keys<K: Kind>(file: &[u8]) {
    let Ok(objects) = tweed_watch::manifests::parse::<K>(file) else {
        return;
    };
    let keys: BTreeSet<ObjectKey> = objects.iter().map(K::key).collect();
    assert_eq!(keys.len(), objects.len());
}
