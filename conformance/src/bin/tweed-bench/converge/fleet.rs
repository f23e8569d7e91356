//! The Nodes of a large cluster, as large as real ones are: 50 images, 15
//! labels, conditions, managed fields. In both encodings of the API.

use std::net::Ipv4Addr;

use anyhow::Context;
use serde_json::{Value, json};

use super::contents::{self, CONDITIONS, HANDLERS, INFO, RESOURCES, text_map};
use super::wire::Message;

/// Second of 2026-01-01, when the first Node was made.
const EPOCH: u64 = 1_767_225_600;

/// One Node.
#[derive(Debug, Clone)]
pub struct FleetNode {
    /// Its name.
    pub name: String,
    /// Its InternalIP.
    pub address: Ipv4Addr,
    /// Its pod CIDR.
    pub pod_cidr: String,
    /// Its resourceVersion; 0 before an API server has given it one.
    pub version: u64,
    number: u32,
    beats: u64,
}

/// A Node in the encodings of the API.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The object as JSON.
    pub json: Vec<u8>,
    /// The object as protobuf, without an envelope.
    pub protobuf: Vec<u8>,
}

impl FleetNode {
    /// The node under test.
    pub fn own(name: &str, address: Ipv4Addr, pod_cidr: &str) -> Self {
        Self {
            name: name.to_owned(),
            address,
            pod_cidr: pod_cidr.to_owned(),
            version: 1,
            number: 0,
            beats: 0,
        }
    }

    /// Another node: `198.18.x.y` (RFC 2544) with pods in `10.x.y.0/24`.
    pub fn numbered(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self {
            name: format!("worker-{number:05}.fleet.example.com"),
            address: Ipv4Addr::new(198, 18, high, low),
            pod_cidr: format!("10.{high}.{low}.0/24"),
            version: 1,
            number: u32::from(number),
            beats: 0,
        }
    }

    /// The kubelet has told again that it lives.
    pub fn beat(&mut self) {
        self.beats += 1;
    }

    /// The first address of its pod CIDR.
    pub fn gateway(&self) -> anyhow::Result<Ipv4Addr> {
        let (network, _) = self.pod_cidr.split_once('/').context("no CIDR")?;
        Ok(network.parse()?)
    }

    /// Both encodings.
    pub fn encode(&self) -> Encoded {
        Encoded {
            json: self.json().to_string().into_bytes(),
            protobuf: self.protobuf(),
        }
    }

    /// What the kubelet sends to tell that it lives, as a patch of the status.
    pub fn status_patch(&self) -> String {
        let conditions: Vec<Value> = (contents::kubelet_conditions().iter())
            .map(|[kind, ..]| {
                json!({"type": kind, "lastHeartbeatTime": contents::timestamp(self.heartbeat())})
            })
            .collect();
        json!({"status": {"conditions": conditions}}).to_string()
    }

    fn uid(&self) -> String {
        format!("5b0b3fd4-9a51-4c3e-8f6e-{:012x}", self.number)
    }

    fn labels(&self) -> [(String, String); 15] {
        contents::labels(&self.name)
    }

    fn annotations(&self) -> [(String, String); 8] {
        contents::annotations(&self.uid(), self.address)
    }

    /// Seconds since 1970 of the last heartbeat.
    fn heartbeat(&self) -> u64 {
        EPOCH + 86_400 * 300 + self.beats * 10
    }

    fn created(&self) -> u64 {
        EPOCH + u64::from(self.number)
    }

    fn json(&self) -> Value {
        let created = contents::timestamp(self.created());
        let managed: Vec<Value> = contents::managed(&self.labels())
            .into_iter()
            .map(|(manager, subresource, fields)| {
                json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": created,
                    "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource})
            })
            .collect();
        let conditions: Vec<Value> = CONDITIONS
            .iter()
            .map(|[kind, status, reason, message]| {
                json!({"type": kind, "status": status, "reason": reason, "message": message,
                    "lastHeartbeatTime": contents::timestamp(self.heartbeat()), "lastTransitionTime": created})
            })
            .collect();
        let images: Vec<Value> = contents::images()
            .map(|(names, size)| json!({"names": names, "sizeBytes": size}))
            .collect();
        let handlers: Vec<Value> = HANDLERS
            .iter()
            .map(|name| {
                json!({"name": name, "features": {
                    "recursiveReadOnlyMounts": true, "userNamespaces": true,
                }})
            })
            .collect();
        json!({
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": self.name, "uid": self.uid(), "resourceVersion": self.version.to_string(),
                "creationTimestamp": created, "labels": text_map(&self.labels()),
                "annotations": text_map(&self.annotations()), "managedFields": managed,
            },
            "spec": {
                "podCIDR": self.pod_cidr, "podCIDRs": [self.pod_cidr],
                "providerID": format!("example:///region-north-1b/i-{:017x}", self.number),
            },
            "status": {
                "capacity": text_map(&RESOURCES), "allocatable": text_map(&RESOURCES),
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": self.address},
                    {"type": "Hostname", "address": self.name},
                    {"type": "InternalDNS", "address": self.name},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": text_map(&INFO),
                "images": images,
                "runtimeHandlers": handlers,
            },
        })
    }

    /// As protobuf, without an envelope.
    pub fn protobuf(&self) -> Vec<u8> {
        let time = |seconds: u64| Message::default().number(1, seconds).number(2, 0);
        let mut metadata = Message::default()
            .text(1, &self.name)
            .text(2, "")
            .text(3, "")
            .text(4, "")
            .text(5, &self.uid())
            .text(6, &self.version.to_string())
            .number(7, 0)
            .message(8, time(self.created()));
        for (key, value) in self.labels() {
            metadata = metadata.entry(11, &key, &value);
        }
        for (key, value) in self.annotations() {
            metadata = metadata.entry(12, &key, &value);
        }
        for (manager, subresource, fields) in contents::managed(&self.labels()) {
            let entry = Message::default()
                .text(1, manager)
                .text(2, "Update")
                .text(3, "v1")
                .message(4, time(self.created()))
                .text(6, "FieldsV1")
                .message(7, Message::default().text(1, &fields.to_string()))
                .text(8, subresource);
            metadata = metadata.message(17, entry);
        }
        let provider = format!("example:///region-north-1b/i-{:017x}", self.number);
        let spec = Message::default()
            .text(1, &self.pod_cidr)
            .text(2, "")
            .text(3, &provider)
            .number(4, 0)
            .text(7, &self.pod_cidr);

        let mut status = Message::default();
        for field in [1, 2] {
            for (name, quantity) in RESOURCES {
                let quantity = Message::default().text(1, quantity);
                let entry = Message::default().text(1, name).message(2, quantity);
                status = status.message(field, entry);
            }
        }
        status = status.text(3, "");
        for [kind, is, reason, message] in CONDITIONS {
            let condition = Message::default()
                .text(1, kind)
                .text(2, is)
                .message(3, time(self.heartbeat()))
                .message(4, time(self.created()))
                .text(5, reason)
                .text(6, message);
            status = status.message(4, condition);
        }
        let address = self.address.to_string();
        for (kind, address) in [
            ("InternalIP", address.as_str()),
            ("Hostname", &self.name),
            ("InternalDNS", &self.name),
        ] {
            let entry = Message::default().text(1, kind).text(2, address);
            status = status.message(5, entry);
        }
        let kubelet = Message::default().number(1, 10250);
        status = status.message(6, Message::default().message(1, kubelet));
        let info = INFO
            .iter()
            .zip(1..)
            .fold(Message::default(), |info, ((_, value), field)| {
                info.text(field, value)
            });
        status = status.message(7, info);
        for (names, size) in contents::images() {
            let image = names
                .iter()
                .fold(Message::default(), |image, name| image.text(1, name));
            status = status.message(8, image.number(2, size));
        }
        for name in HANDLERS {
            let features = Message::default().number(1, 1).number(2, 1);
            status = status.message(12, Message::default().text(1, name).message(2, features));
        }
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, status)
            .into_bytes()
    }
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
}
