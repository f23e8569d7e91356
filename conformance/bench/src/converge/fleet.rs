//! The Nodes of a large cluster, as large as real ones: 50 images, 15 labels, ten
//! conditions, managed fields.

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};

use tweed_lab_api::{Object, time};

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
const IMAGES: u64 = 50;

/// One Node of the cluster.
#[derive(Debug, Clone)]
pub struct FleetNode {
    /// Its name.
    pub name: String,
    /// Its `InternalIP`.
    address: Ipv4Addr,
    /// The first address of its pod CIDR, a /24.
    pub pods: Ipv4Addr,
    number: u16,
    beats: u16,
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
            number,
            beats: 0,
        }
    }

    /// The same after its kubelet has reported again that it lives.
    pub fn beating(self) -> Self {
        Self { beats: 1, ..self }
    }

    /// It is ready to be sent.
    pub fn encoded(&self) -> Arc<Object> {
        Arc::new(Object::new(&self.object()))
    }

    /// As the API has it.
    pub fn object(&self) -> Value {
        let Self { name, number, .. } = self;
        let cidr = format!("{}/24", self.pods);
        let created = time(u32::from(*number));
        // Two are its own, as the host name and the number of the machine are; the others, as a
        // zone and an instance type, have few values each.
        let label = |label| {
            let key = format!("topology.fleet.example.com/label-{label:02}");
            let value = match label {
                0 | 1 => name.clone(),
                _ => (u32::from(*number) % (label + 1)).to_string(),
            };
            (key, format!("value-{label}-of-{value}"))
        };
        let labels: Value = (0..15).map(label).collect();
        let [a, b, c, d] = self.address.octets();
        let backend = format!(r#"{{"VNI":1,"VtepMAC":"0e:fa:{a:02x}:{b:02x}:{c:02x}:{d:02x}"}}"#);
        let managed = CONDITIONS.chunks(3).map(|part| managed(part, &created));
        let resources = json!({ "cpu": "16", "memory": "64832112Ki", "pods": "110" });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "uid": format!("5b0b3fd4-9a51-4c3e-8f6e-{number:012x}"),
                "resourceVersion": "1", "creationTimestamp": created, "labels": labels,
                // flannel passes over Nodes that do not have these.
                "annotations": {
                    "flannel.alpha.coreos.com/backend-data": backend,
                    "flannel.alpha.coreos.com/backend-type": "vxlan",
                    "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                    "flannel.alpha.coreos.com/public-ip": self.address,
                },
                "managedFields": managed.collect::<Vec<_>>(),
            },
            "spec": {
                "podCIDR": cidr, "podCIDRs": [cidr],
                "providerID": format!("example:///region-north-1b/i-{number:017x}"),
            },
            "status": {
                "capacity": resources, "allocatable": resources,
                "conditions": CONDITIONS.map(|kind| self.condition(kind, &created)),
                "addresses": [
                    { "type": "InternalIP", "address": self.address },
                    { "type": "Hostname", "address": name },
                    { "type": "InternalDNS", "address": name },
                ],
                "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
            },
        })
    }

    fn condition(&self, kind: &str, created: &str) -> Value {
        json!({
            "type": kind, "status": if kind == "Ready" { "True" } else { "False" },
            "lastHeartbeatTime": time(36_000 + u32::from(self.beats) * 10),
            "lastTransitionTime": created, "reason": format!("KubeletHasLookedAt{kind}Now"),
            "message": format!("kubelet has looked at {kind} and reports what it found"),
        })
    }
}

/// What server-side apply remembers of who wrote these conditions.
fn managed(conditions: &[&str], time: &str) -> Value {
    let written = json!({
        ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {}, "f:message": {},
        "f:reason": {}, "f:status": {}, "f:type": {},
    });
    let key = |kind: &&str| (format!(r#"k:{{"type":"{kind}"}}"#), written.clone());
    let keys: Value = conditions.iter().map(key).collect();
    json!({
        "manager": "node-problem-detector", "operation": "Update", "apiVersion": "v1",
        "time": time, "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": { "f:status": { "f:conditions": keys } },
    })
}

fn image(number: u64) -> Value {
    let name = format!("registry.example.com/service-{number:02}");
    let digest = format!("{name}@sha256:{}", format!("{number:02x}").repeat(32));
    json!({
        "names": [digest, format!("{name}:v1.{number}")],
        "sizeBytes": 40_000_000 + 1_234_567 * number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_real_ones() {
        let node = FleetNode::numbered(4711).encoded();
        let [json, protobuf] = [false, true].map(|protobuf| node.event("ADDED", protobuf).len());
        assert!((15_000..18_000).contains(&json), "{json} and {protobuf}");
        assert!((12_000..13_500).contains(&protobuf), "{protobuf}");
    }
}
