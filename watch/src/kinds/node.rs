//! Decoding of Nodes.
//!
//! A field of the wrong type invalidates neither the Node nor its neighbours
//! in a list: it is passed on as text, and the planner refuses it by name.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::node::{Node, NodeAddress, VtepOverride};

use super::{given, lossy, optional_text, text};
use crate::kind::{InvalidName, Kind, valid_name};

/// A Node as protobuf.
#[derive(prost::Message)]
pub struct NodeMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
    #[prost(message, optional, tag = "3")]
    status: Option<StatusMessage>,
}

#[derive(prost::Message)]
struct MetadataMessage {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    uid: Vec<u8>,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<TimeMessage>,
}

/// A `meta/v1.Time`; the server encodes "none" as an empty message.
#[derive(prost::Message)]
struct TimeMessage {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
}

#[derive(prost::Message)]
struct SpecMessage {
    #[prost(bytes = "vec", tag = "1")]
    pod_cidr: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    pod_cidrs: Vec<Vec<u8>>,
}

#[derive(prost::Message)]
struct StatusMessage {
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<AddressMessage>,
}

#[derive(prost::Message)]
struct AddressMessage {
    #[prost(bytes = "vec", tag = "1")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    address: Vec<u8>,
}

/// A Node as JSON or YAML.
#[derive(Deserialize)]
pub struct NodeManifest {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<Value>,
    uid: Option<Value>,
    creation_timestamp: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<Value>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Status {
    addresses: Option<Value>,
}

impl Kind for Node {
    const NAME: &'static str = "Node";
    const PATH: &'static str = "/api/v1/nodes";
    type Message = NodeMessage;
    type Manifest = NodeManifest;

    fn from_message(message: NodeMessage) -> Result<Self, InvalidName> {
        let metadata = message.metadata.unwrap_or_default();
        let spec = message.spec.unwrap_or_default();
        let addresses = message.status.unwrap_or_default().addresses;
        Ok(Self {
            name: valid_name(Self::NAME, lossy(metadata.name))?,
            uid: lossy(metadata.uid),
            created: metadata.creation_timestamp.and_then(|time| time.seconds),
            pod_cidrs: pod_cidrs(
                spec.pod_cidrs.into_iter().map(lossy),
                std::iter::once(lossy(spec.pod_cidr)),
            ),
            addresses: (addresses.into_iter())
                .map(|entry| NodeAddress {
                    kind: lossy(entry.kind),
                    address: lossy(entry.address),
                })
                .collect(),
            vtep: VtepOverride::default(),
        })
    }

    fn from_manifest(manifest: NodeManifest) -> Result<Self, InvalidName> {
        let metadata = manifest.metadata.unwrap_or_default();
        let spec = manifest.spec.unwrap_or_default();
        let addresses = manifest.status.unwrap_or_default().addresses;
        Ok(Self {
            name: valid_name(Self::NAME, optional_text(metadata.name))?,
            uid: optional_text(metadata.uid),
            created: given(metadata.creation_timestamp).map(|at| seconds(&at)),
            pod_cidrs: pod_cidrs(
                items(spec.pod_cidrs).into_iter().map(text),
                items(spec.pod_cidr).into_iter().map(text),
            ),
            addresses: items(addresses).into_iter().map(address).collect(),
            vtep: VtepOverride::default(),
        })
    }
}

/// `podCIDRs`, or `podCIDR` if there is none of them.
fn pod_cidrs(
    several: impl Iterator<Item = String>,
    single: impl Iterator<Item = String>,
) -> Vec<String> {
    let given = |cidr: &String| !cidr.is_empty();
    let cidrs: Vec<String> = several.filter(given).collect();
    match cidrs.is_empty() {
        true => single.filter(given).collect(),
        false => cidrs,
    }
}

/// The items of a list; a value that is no list counts as its only item.
fn items(value: Option<Value>) -> Vec<Value> {
    match given(value) {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => vec![other],
    }
}

fn address(mut value: Value) -> NodeAddress {
    match (value.get("type").is_some(), value.get("address").is_some()) {
        (true, true) => NodeAddress {
            kind: text(value["type"].take()),
            address: text(value["address"].take()),
        },
        // Not an entry of a Node: passed on as an address that is invalid.
        _ => NodeAddress {
            kind: "InternalIP".to_owned(),
            address: text(value),
        },
    }
}

/// Seconds since 1970. A time that cannot be read must not make a Node the
/// oldest of several that claim the same address: it counts as the youngest.
fn seconds(value: &Value) -> i64 {
    (value.as_str())
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map_or(i64::MAX, Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: Value) -> Result<Node, InvalidName> {
        Node::from_manifest(serde_json::from_value(value).unwrap())
    }

    fn named(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            ..Node::default()
        }
    }

    #[test]
    fn a_node_as_the_api_writes_it() {
        let node = node(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "worker-1",
                "uid": "5b0b3fd4",
                "creationTimestamp": "2026-11-21T10:00:00Z",
                "labels": {"a": "b"},
                "managedFields": [{}],
            },
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "192.0.2.1"},
                    {"type": "Hostname", "address": "worker-1"},
                ],
                "images": [{"names": ["x"]}],
            },
        }))
        .unwrap();
        let address = |kind: &str, address: &str| NodeAddress {
            kind: kind.to_owned(),
            address: address.to_owned(),
        };
        let expected = Node {
            uid: "5b0b3fd4".to_owned(),
            created: Some(1_795_255_200),
            pod_cidrs: vec!["10.244.1.0/24".to_owned(), "fd00:1::/64".to_owned()],
            addresses: vec![
                address("InternalIP", "192.0.2.1"),
                address("Hostname", "worker-1"),
            ],
            ..named("worker-1")
        };
        assert_eq!(node, expected);
    }

    #[test]
    fn a_node_can_be_as_good_as_empty() {
        for value in [
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a", "uid": null, "creationTimestamp": null}, "spec": null, "status": null}),
            json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}),
            json!({"metadata": {"name": "a"}, "spec": {"podCIDR": "", "podCIDRs": []}, "status": {"addresses": null}}),
        ] {
            assert_eq!(node(value), Ok(named("a")));
        }
    }

    #[test]
    fn the_old_pod_cidr_alone_is_enough() {
        let value = json!({"metadata": {"name": "a"}, "spec": {"podCIDR": "10.244.1.0/24"}});
        assert_eq!(node(value).unwrap().pod_cidrs, ["10.244.1.0/24"]);
    }

    #[test]
    fn a_field_of_the_wrong_type_becomes_text_to_refuse() {
        let node = node(json!({
            "metadata": {"name": 7, "uid": 8, "creationTimestamp": "yesterday"},
            "spec": {"podCIDRs": [5, {"a": 1}]},
            "status": {"addresses": [{"type": "InternalIP"}, "192.0.2.1", 9]},
        }))
        .unwrap();
        assert_eq!((node.name.as_str(), node.uid.as_str()), ("7", "8"));
        assert_eq!(node.created, Some(i64::MAX));
        assert_eq!(node.pod_cidrs, ["5", "{\"a\":1}"]);
        let addresses: Vec<_> = node.addresses.iter().map(|a| a.address.as_str()).collect();
        assert_eq!(addresses, ["{\"type\":\"InternalIP\"}", "192.0.2.1", "9"]);
    }

    #[test]
    fn a_name_that_no_node_can_have_is_refused() {
        assert_eq!(node(json!({})), Err(InvalidName::Missing));
        assert_eq!(
            node(json!({"metadata": {"name": ""}})),
            Err(InvalidName::Missing)
        );
        for name in ["a b", "a\nb", "a/b", "ä", &"a".repeat(254)] {
            let refused = node(json!({"metadata": {"name": name}}));
            assert!(
                matches!(refused, Err(InvalidName::NotAllowed { .. })),
                "{name:?}"
            );
        }
    }
}
