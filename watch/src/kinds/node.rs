//! Decoding of Nodes.
//!
//! A field of the wrong type invalidates neither the Node nor its neighbours
//! in a list: it is passed on as text, and the planner refuses it by name.

use std::net::IpAddr;

use serde::Deserializer;
use serde_json::Value;

use tweed_core::object::node::{Node, NodeAddress, TO_BE_DELETED};

use super::metadata::Metadata;
use super::{exact, items, list_or_first, lossy, text};
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of a Node.
    pub struct NodeFields {
        metadata: one(Metadata) = 1,
        spec: one(Spec) = 2,
        status: one(Status) = 3,
    }

    struct Spec {
        pod_cidr: texts = 1 as "podCIDR",
        taints: objects(Taint) = 5,
        pod_cidrs: texts = 7 as "podCIDRs",
    }

    struct Taint {
        key: text = 1,
    }

    struct Condition {
        kind: text = 1 as "type",
        status: text = 2,
    }

    struct Status {
        conditions: objects(Condition) = 4,
        #[prost(message, repeated, tag = "5")]
        #[serde(deserialize_with = "addresses")]
        addresses: Vec<Address>,
    }
}

#[derive(prost::Message)]
struct Address {
    #[prost(bytes = "vec", tag = "1")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    address: Vec<u8>,
}

impl Kind for Node {
    const NAME: &'static str = "Node";
    const PATH: &'static str = "/api/v1/nodes";
    type Fields = NodeFields;

    fn from_fields(fields: NodeFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        let spec = fields.spec.unwrap_or_default();
        let status = fields.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|condition| condition.kind == b"Ready");
        let not_ready = ready.is_some_and(|condition| condition.status != b"True");
        let addresses = status.addresses.into_iter();
        let mut taints = spec.taints.iter();
        let to_be_deleted = taints.any(|taint| taint.key == TO_BE_DELETED.as_bytes());
        Ok(Self {
            name: metadata.name(Self::NAME)?,
            created: metadata.created(),
            leaving: metadata.is_deleted() || to_be_deleted,
            not_ready,
            labels: metadata.labels().into(),
            uid: lossy(metadata.uid),
            pod_cidrs: list_or_first(spec.pod_cidrs, spec.pod_cidr),
            addresses: exact(addresses.filter_map(Address::of_use)),
        })
    }
}

fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Address>, D::Error> {
    let entries = items(deserializer)?.into_iter();
    Ok(entries.map(Address::from).collect())
}

impl Address {
    /// The entry, unless it is a name: only addresses of the two kinds that tweed sends to
    /// have to be ones.
    fn of_use(self) -> Option<NodeAddress> {
        let is_sent_to = self.kind == b"InternalIP" || self.kind == b"ExternalIP";
        let entry = NodeAddress {
            kind: lossy(self.kind),
            address: lossy(self.address),
        };
        (is_sent_to || entry.address.parse::<IpAddr>().is_ok()).then_some(entry)
    }
}

impl From<Value> for Address {
    fn from(mut entry: Value) -> Self {
        match (entry.get("type").is_some(), entry.get("address").is_some()) {
            (true, true) => Self {
                kind: text(entry["type"].take()),
                address: text(entry["address"].take()),
            },
            // Not an entry of a Node: passed on as an address that is invalid.
            _ => Self {
                kind: b"InternalIP".to_vec(),
                address: text(entry),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: Value) -> Result<Node, InvalidName> {
        Node::from_fields(serde_json::from_value(value).unwrap())
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
                    {"type": "Hostname", "address": "192.0.2.7"},
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
                address("Hostname", "192.0.2.7"),
            ],
            labels: [("a".to_owned(), "b".to_owned())].into(),
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
    fn a_node_leaves_by_its_deletion_and_by_the_taint_of_cluster_autoscaler() {
        let leaving = |metadata: Value, taints: Value| {
            let value = json!({"metadata": metadata, "spec": {"taints": taints}});
            node(value).unwrap().leaving
        };
        let stays = || json!({"name": "a", "deletionTimestamp": null});
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule", "value": "1"});
        let other = "node.kubernetes.io/unreachable";
        assert!(!leaving(stays(), Value::Null));
        assert!(!leaving(stays(), json!([taint(other), 7, {}])));
        assert!(leaving(
            stays(),
            json!([taint(other), taint(TO_BE_DELETED)])
        ));
        let deleted = json!({"name": "a", "deletionTimestamp": "2026-11-21T10:00:00Z"});
        assert!(leaving(deleted, Value::Null));
    }

    #[test]
    fn a_node_is_not_ready_if_a_condition_says_so() {
        let not_ready = |conditions: Value| {
            let status = json!({"conditions": conditions});
            let value = json!({"metadata": {"name": "a"}, "status": status});
            node(value).unwrap().not_ready
        };
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        assert!(!not_ready(Value::Null));
        assert!(!not_ready(json!([condition("Ready", "True"), 7])));
        assert!(!not_ready(json!([condition("DiskPressure", "False")])));
        for status in ["False", "Unknown", ""] {
            let other = condition("DiskPressure", "False");
            assert!(not_ready(json!([other, condition("Ready", status)])));
        }
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
        for none in [json!({}), json!({"metadata": {"name": ""}})] {
            let why = node(none).unwrap_err().to_string();
            assert_eq!(why, "has no metadata.name");
        }
        for name in ["a b", "a\nb", "a/b", "ä", &"a".repeat(254)] {
            let error = node(json!({"metadata": {"name": name}})).unwrap_err();
            let why = error.to_string();
            assert!(why.ends_with(", which no Node can have"), "{why}");
        }
    }
}
