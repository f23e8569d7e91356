//! The few fields of a Node manifest that tweed uses, from YAML or JSON. All
//! else (images, labels, conditions, managed fields) is skipped while parsing
//! and never held.
//!
//! A field of the wrong type does not cost the Node, nor its neighbours in a
//! list: it is passed on as text, for [`tweed_planner::overlay::claims`] to refuse by
//! name. Only a Node without a name is no Node.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::node::{Node, NodeAddress, VtepOverride};
use tweed_core::text::printable;

/// A Node as the API writes it, less what is not used.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub metadata: Option<Metadata>,
    pub spec: Option<Spec>,
    pub status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub name: Option<Value>,
    pub uid: Option<Value>,
    pub creation_timestamp: Option<Value>,
    pub resource_version: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Spec {
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<Value>,
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub addresses: Option<Value>,
}

/// Why a manifest is no Node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotNode {
    #[error("has no metadata.name")]
    Nameless,
    #[error("has the name {0}, which no Node can have")]
    BadName(String),
}

impl Manifest {
    /// The Node's name.
    pub(super) fn name(&self) -> Result<String, NotNode> {
        let name = self.metadata.as_ref().and_then(|m| m.name.as_ref());
        node_name(text(name.ok_or(NotNode::Nameless)?))
    }

    /// The Node that the manifest describes.
    pub(super) fn node(self) -> Result<Node, NotNode> {
        let name = self.name()?;
        let (uid, created) = match self.metadata {
            Some(m) => (
                given(m.uid).map(|uid| text(&uid)).unwrap_or_default(),
                given(m.creation_timestamp).map(|at| seconds(&at)),
            ),
            None => (String::new(), None),
        };
        let pod_cidrs = (self.spec)
            .map(|spec| {
                let plural = items(spec.pod_cidrs);
                let cidrs = if plural.is_empty() {
                    items(spec.pod_cidr)
                } else {
                    plural
                };
                cidrs.iter().map(text).filter(|c| !c.is_empty()).collect()
            })
            .unwrap_or_default();
        let addresses = items(self.status.and_then(|status| status.addresses));
        Ok(Node {
            name,
            uid,
            created,
            pod_cidrs,
            addresses: addresses.iter().map(address).collect(),
            vtep: VtepOverride::default(),
        })
    }
}

/// `name`, if a Node can have it.
pub(super) fn node_name(name: String) -> Result<String, NotNode> {
    // What Kubernetes allows (RFC 1123 subdomain), less its rules on where
    // '-' and '.' stand: what matters here is that a log line can hold it.
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    if name.is_empty() {
        Err(NotNode::Nameless)
    } else if name.len() <= 253 && name.bytes().all(allowed) {
        Ok(name)
    } else {
        Err(NotNode::BadName(printable(&name)))
    }
}

/// A field that is there and not null.
fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_null())
}

/// A field that should be a list; one that is not is its own only item.
fn items(value: Option<Value>) -> Vec<Value> {
    match given(value) {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => vec![other],
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn address(value: &Value) -> NodeAddress {
    match (value.get("type"), value.get("address")) {
        (Some(kind), Some(address)) => NodeAddress {
            kind: text(kind),
            address: text(address),
        },
        // No entry of a Node: named as an address that is none.
        _ => NodeAddress {
            kind: "InternalIP".to_owned(),
            address: text(value),
        },
    }
}

/// Seconds since 1970. An age that cannot be read must not win an argument: it
/// counts as youngest.
fn seconds(value: &Value) -> i64 {
    (value.as_str())
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map_or(i64::MAX, Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use crate::fixture::NodeFixture as _;
    use serde_json::json;

    use super::*;

    fn node(value: Value) -> Result<Node, NotNode> {
        serde_json::from_value::<Manifest>(value).unwrap().node()
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
        let expected = crate::fixture::node("worker-1")
            .uid("5b0b3fd4")
            .created(1_795_255_200)
            .cidr("10.244.1.0/24")
            .cidr("fd00:1::/64")
            .internal("192.0.2.1")
            .address("Hostname", "worker-1");
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
            assert_eq!(node(value), Ok(crate::fixture::node("a")));
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
        assert_eq!(node(json!({})), Err(NotNode::Nameless));
        assert_eq!(
            node(json!({"metadata": {"name": ""}})),
            Err(NotNode::Nameless)
        );
        for name in ["a b", "a\nb", "a/b", "ä", &"a".repeat(254)] {
            let refused = node(json!({"metadata": {"name": name}}));
            assert!(matches!(refused, Err(NotNode::BadName(_))), "{name:?}");
        }
    }
}
