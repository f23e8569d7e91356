//! Nodes, written in each encoding in which they may arrive.

use crate::answer::{Answer, Page};
use k8s_openapi::jiff::Timestamp;
use prost::Message as _;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tweed_core::object::node::Node;
use tweed_watch::Kind;

/// Runs what waits for pieces that are all there.
pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime without I/O")
}

/// The bytes of an answer, whole or in pieces of this size.
pub(crate) fn answer(protobuf: bool, bytes: &[u8], piece: usize) -> Answer {
    let pieces = match piece {
        0 => vec![Bytes::copy_from_slice(bytes)],
        size => bytes.chunks(size).map(Bytes::copy_from_slice).collect(),
    };
    Answer { protobuf, pieces }
}

/// A Node's manifest; none if its age cannot be written as text.
fn manifest(node: &Node) -> Option<Value> {
    let created = match node.created {
        None => Value::Null,
        Some(i64::MAX) => "unreadable".into(),
        Some(seconds) => Timestamp::from_second(seconds).ok()?.to_string().into(),
    };
    let deleted = node.leaving.then_some("2026-11-21T10:00:00Z");
    let entries = node.addresses.iter();
    let addresses: Vec<Value> = entries
        .map(|entry| json!({"type": entry.kind, "address": entry.address}))
        .collect();
    Some(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "creationTimestamp": created,
            "deletionTimestamp": deleted,
            "labels": node.labels,
        },
        "spec": {"podCIDRs": node.pod_cidrs},
        "status": {"addresses": addresses},
    }))
}

/// A field of protobuf with a length.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = prost::encoding::WireType::LengthDelimited;
    prost::encoding::encode_key(number, kind, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// `runtime.Unknown`, the envelope around every object.
fn envelope(object: &[u8]) -> Vec<u8> {
    [b"k8s\0".as_slice(), &field(2, object)].concat()
}

/// Nodes are the same whether they are read from a list in protobuf, from one in JSON or
/// from a file, in YAML's sense or in JSON's.
pub(crate) fn same_in_every_encoding(nodes: &[Node]) {
    let pairs = nodes
        .iter()
        .filter_map(|node| Some((node, manifest(node)?)));
    let (listed, manifests): (Vec<&Node>, Vec<Value>) = pairs.unzip();
    let nodes: Vec<Node> = listed.into_iter().cloned().collect();
    let metadata = [field(2, b"7"), field(3, b"next")].concat();
    let mut list = field(1, &metadata);
    for manifest in &manifests {
        let decoded = serde_json::from_value::<<Node as Kind>::Fields>(manifest.clone());
        let fields = decoded.expect("a manifest is decoded");
        list.extend(field(2, &fields.encode_to_vec()));
    }
    let protobuf = answer(true, &envelope(&list), 0);
    let metadata = json!({"resourceVersion": "7", "continue": "next"});
    let list = json!({"kind": "NodeList", "metadata": metadata, "items": manifests}).to_string();
    let json = answer(false, list.as_bytes(), 0);
    let expected = Page {
        objects: nodes,
        version: "7".to_owned(),
        continue_token: "next".to_owned(),
    };
    let runtime = runtime();
    assert_eq!(runtime.block_on(protobuf.page()).as_ref(), Ok(&expected));
    assert_eq!(runtime.block_on(json.page()).as_ref(), Ok(&expected));

    // A file names no Node twice; a list of a server could.
    let mut names: Vec<&str> = expected.objects.iter().map(|n| n.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() == expected.objects.len() {
        let read = tweed_watch::manifests::parse::<Node>(list.as_bytes());
        assert_eq!(read.as_ref(), Ok(&expected.objects));
        // A comment before it makes it YAML, which has JSON in it, but for characters
        // that cannot be printed.
        let yaml = format!("# Nodes\n{list}");
        let read = tweed_watch::manifests::parse::<Node>(yaml.as_bytes());
        let is_printable = list.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if is_printable || read.is_ok() {
            assert_eq!(read.as_ref(), Ok(&expected.objects));
        }
    }
}
