//! The Nodes of a large cluster, as large as real ones: 50 images, 15 labels, ten
//! conditions, managed fields. Each is written in both encodings of the API.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`. They stand apart from the
//! agent's reader on purpose: a number that is wrong in one of the two shows as a
//! Node that is not understood.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bytes::Bytes;
use prost::Message;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Second of 2026-11-21, the day of all times in a Node.
const DAY: i64 = 1_795_219_200;
const CONDITIONS: [&str; 10] = [
    "NetworkUnavailable",
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "CorruptDockerOverlay2",
    "FrequentKubeletRestart",
    "FrequentContainerdRestart",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "Ready",
];
const IMAGES: i64 = 50;

/// One Node of the cluster.
#[derive(Debug, Clone)]
pub struct FleetNode {
    /// Its name.
    pub name: String,
    /// Its InternalIP.
    pub address: Ipv4Addr,
    /// The first address of its pod CIDR, a /24.
    pub pods: Ipv4Addr,
    /// Its resourceVersion.
    pub version: usize,
    number: u16,
    beats: u16,
}

/// A Node in the encodings of the API.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// As JSON.
    pub json: Bytes,
    /// As protobuf, without an envelope.
    pub protobuf: Bytes,
}

impl FleetNode {
    /// The node on which the agent runs.
    pub fn own(name: &str, address: Ipv4Addr) -> Self {
        Self {
            name: name.to_owned(),
            address,
            pods: Ipv4Addr::new(10, 250, 0, 0),
            ..Self::numbered(0)
        }
    }

    /// Another node: `198.18.x.y` (RFC 2544) with pods in `10.x.y.0/24`.
    pub fn numbered(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self {
            name: format!("worker-{number:05}.fleet.example.com"),
            address: Ipv4Addr::new(198, 18, high, low),
            pods: Ipv4Addr::new(10, high, low, 0),
            version: 1,
            number,
            beats: 0,
        }
    }

    /// Its kubelet has reported again that it lives.
    pub fn beat(&mut self) {
        self.beats += 1;
    }

    /// Both encodings.
    pub fn encode(&self) -> Encoded {
        let node = Node {
            metadata: Some(self.metadata()),
            spec: Some(self.spec()),
            status: Some(self.status()),
        };
        let typed = Typed {
            kind: "Node",
            api_version: "v1",
            object: &node,
        };
        // Text and numbers can always be written as JSON.
        let json = serde_json::to_vec(&typed).unwrap_or_default();
        Encoded {
            json: json.into(),
            protobuf: node.encode_to_vec().into(),
        }
    }

    fn created(&self) -> Option<Time> {
        let seconds = DAY + i64::from(self.number);
        Some(Time { seconds })
    }

    fn metadata(&self) -> ObjectMeta {
        let [a, b, c, d] = self.address.octets();
        let label = |number| {
            let key = format!("topology.fleet.example.com/label-{number:02}");
            (key, format!("value-{number}-of-{}", self.name))
        };
        // flannel passes over Nodes that do not have these.
        let annotations = [
            (
                "backend-data",
                format!(r#"{{"VNI":1,"VtepMAC":"0e:fa:{a:02x}:{b:02x}:{c:02x}:{d:02x}"}}"#),
            ),
            ("backend-type", "vxlan".to_owned()),
            ("kube-subnet-manager", "true".to_owned()),
            ("public-ip", self.address.to_string()),
        ]
        .map(|(key, value)| (format!("flannel.alpha.coreos.com/{key}"), value));
        ObjectMeta {
            name: self.name.clone(),
            uid: format!("5b0b3fd4-9a51-4c3e-8f6e-{:012x}", self.number),
            resource_version: self.version.to_string(),
            creation_timestamp: self.created(),
            labels: (0..15).map(label).collect(),
            annotations: annotations.into(),
            managed_fields: CONDITIONS
                .chunks(3)
                .map(|part| self.managed(part))
                .collect(),
        }
    }

    /// What server-side apply remembers of who wrote these conditions.
    fn managed(&self, conditions: &[&str]) -> ManagedFields {
        let written = json!({
            ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {}, "f:message": {},
            "f:reason": {}, "f:status": {}, "f:type": {},
        });
        let key = |kind: &&str| (format!(r#"k:{{"type":"{kind}"}}"#), written.clone());
        let conditions: Value = conditions.iter().map(key).collect();
        let raw = json!({ "f:status": { "f:conditions": conditions } }).to_string();
        ManagedFields {
            manager: "node-problem-detector".to_owned(),
            operation: "Update".to_owned(),
            api_version: "v1".to_owned(),
            time: self.created(),
            fields_type: "FieldsV1".to_owned(),
            fields_v1: Some(FieldsV1 { raw }),
            subresource: "status".to_owned(),
        }
    }

    fn spec(&self) -> NodeSpec {
        let cidr = format!("{}/24", self.pods);
        NodeSpec {
            pod_cidr: cidr.clone(),
            provider_id: format!("example:///region-north-1b/i-{:017x}", self.number),
            pod_cidrs: vec![cidr],
        }
    }

    fn status(&self) -> NodeStatus {
        let seconds = DAY + 36_000 + i64::from(self.beats) * 10;
        let condition = |kind: &str| Condition {
            kind: kind.to_owned(),
            status: if kind == "Ready" { "True" } else { "False" }.to_owned(),
            last_heartbeat_time: Some(Time { seconds }),
            last_transition_time: self.created(),
            reason: format!("KubeletHasLookedAt{kind}Now"),
            message: format!("kubelet has looked at {kind} and reports what it found"),
        };
        let address = |kind: &str, address: String| NodeAddress {
            kind: kind.to_owned(),
            address,
        };
        let image = |number| {
            let name = format!("registry.example.com/service-{number:02}");
            let digest = format!("{name}@sha256:{}", format!("{number:02x}").repeat(32));
            Image {
                names: vec![digest, format!("{name}:v1.{number}")],
                size_bytes: 40_000_000 + 1_234_567 * number,
            }
        };
        let resources = [("cpu", "16"), ("memory", "64832112Ki"), ("pods", "110")];
        let resources: BTreeMap<String, Quantity> = resources
            .map(|(name, text)| {
                (
                    name.to_owned(),
                    Quantity {
                        text: text.to_owned(),
                    },
                )
            })
            .into();
        NodeStatus {
            capacity: resources.clone(),
            allocatable: resources,
            conditions: CONDITIONS.map(condition).into(),
            addresses: vec![
                address("InternalIP", self.address.to_string()),
                address("Hostname", self.name.clone()),
                address("InternalDNS", self.name.clone()),
            ],
            images: (0..IMAGES).map(image).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Typed<'a> {
    kind: &'a str,
    api_version: &'a str,
    #[serde(flatten)]
    object: &'a Node,
}

#[derive(Message, Serialize)]
struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<NodeStatus>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "17")]
    managed_fields: Vec<ManagedFields>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[prost(string, tag = "1")]
    manager: String,
    #[prost(string, tag = "2")]
    operation: String,
    #[prost(string, tag = "3")]
    api_version: String,
    #[prost(message, optional, tag = "4")]
    time: Option<Time>,
    #[prost(string, tag = "6")]
    fields_type: String,
    #[prost(message, optional, tag = "7")]
    #[serde(rename = "fieldsV1")]
    fields_v1: Option<FieldsV1>,
    #[prost(string, tag = "8")]
    subresource: String,
}

#[derive(Message)]
struct FieldsV1 {
    #[prost(string, tag = "1")]
    raw: String,
}

impl Serialize for FieldsV1 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields: Value = serde_json::from_str(&self.raw).map_err(serde::ser::Error::custom)?;
        fields.serialize(serializer)
    }
}

#[derive(Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl Serialize for Time {
    /// RFC 3339; all times are of one day.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let second = self.seconds - DAY;
        let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
        serializer.collect_str(&format_args!(
            "2026-11-21T{hours:02}:{minutes:02}:{seconds:02}Z"
        ))
    }
}

#[derive(Message, Serialize)]
struct NodeSpec {
    #[prost(string, tag = "1")]
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "providerID")]
    provider_id: String,
    #[prost(string, repeated, tag = "7")]
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Message, Serialize)]
struct NodeStatus {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    allocatable: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<Condition>,
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<NodeAddress>,
    #[prost(message, repeated, tag = "8")]
    images: Vec<Image>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(transparent)]
struct Quantity {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    kind: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "3")]
    last_heartbeat_time: Option<Time>,
    #[prost(message, optional, tag = "4")]
    last_transition_time: Option<Time>,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(string, tag = "6")]
    message: String,
}

#[derive(Message, Serialize)]
struct NodeAddress {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    kind: String,
    #[prost(string, tag = "2")]
    address: String,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
    #[prost(int64, tag = "2")]
    size_bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_real_ones() {
        let Encoded { json, protobuf } = FleetNode::numbered(4711).encode();
        let (json, protobuf) = (json.len(), protobuf.len());
        assert!((16_000..18_000).contains(&json), "{json} and {protobuf}");
        assert!((12_000..13_500).contains(&protobuf), "{protobuf}");
    }

    #[test]
    fn times_are_written_as_the_api_writes_them() {
        let mut node = FleetNode::numbered(3671);
        node.beat();
        let json: Value = serde_json::from_slice(&node.encode().json).unwrap();
        let created = &json["metadata"]["creationTimestamp"];
        assert_eq!(created, "2026-11-21T01:01:11Z");
        let heartbeat = &json["status"]["conditions"][0]["lastHeartbeatTime"];
        assert_eq!(heartbeat, "2026-11-21T10:00:10Z");
    }
}
