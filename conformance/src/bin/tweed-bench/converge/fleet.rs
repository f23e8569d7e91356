//! The Nodes of a large cluster, as large as real ones are: 50 images, 15
//! labels, conditions, managed fields. In both encodings of the API.

use std::net::Ipv4Addr;

use anyhow::Context;
use serde_json::{Value, json};

use super::wire::Message;

const IMAGES: usize = 50;
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
    /// Its resourceVersion.
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

    fn uid(&self) -> String {
        format!("5b0b3fd4-9a51-4c3e-8f6e-{:012x}", self.number)
    }

    fn labels(&self) -> [(String, String); 15] {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        [
            label("beta.kubernetes.io/arch", "amd64"),
            label("beta.kubernetes.io/os", "linux"),
            label("kubernetes.io/arch", "amd64"),
            label("kubernetes.io/os", "linux"),
            label("kubernetes.io/hostname", &self.name),
            label("node.kubernetes.io/instance-type", "m7i.4xlarge"),
            label("beta.kubernetes.io/instance-type", "m7i.4xlarge"),
            label("topology.kubernetes.io/region", "region-north-1"),
            label("topology.kubernetes.io/zone", "region-north-1b"),
            label("failure-domain.beta.kubernetes.io/region", "region-north-1"),
            label("failure-domain.beta.kubernetes.io/zone", "region-north-1b"),
            label("node-role.kubernetes.io/worker", ""),
            label("fleet.example.com/pool", "general-purpose"),
            label("fleet.example.com/image", "debian-13-20260101"),
            label("fleet.example.com/team", "platform"),
        ]
    }

    fn annotations(&self) -> [(String, String); 4] {
        [
            ("node.alpha.kubernetes.io/ttl", "300".to_owned()),
            (
                "volumes.kubernetes.io/controller-managed-attach-detach",
                "true".to_owned(),
            ),
            (
                "csi.volume.kubernetes.io/nodeid",
                format!(r#"{{"disk.csi.example.com":"{}"}}"#, self.uid()),
            ),
            (
                "fleet.example.com/provisioned-by",
                "machine-controller/v1".to_owned(),
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }

    fn images() -> impl Iterator<Item = ([String; 2], u64)> {
        (0..IMAGES).map(|image| {
            let repository = format!("registry.example.com/team-{}/service-{image:02}", image % 7);
            let digest = format!("{image:02x}").repeat(32);
            (
                [
                    format!("{repository}@sha256:{digest}"),
                    format!("{repository}:v1.{image}.{}", image * 3),
                ],
                40_000_000 + 1_234_567 * image as u64,
            )
        })
    }

    /// Type, status, reason, message.
    const CONDITIONS: [[&str; 4]; 4] = [
        [
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ],
        [
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ],
        [
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ],
        [
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        ],
    ];

    const RESOURCES: [(&str, &str); 7] = [
        ("cpu", "16"),
        ("ephemeral-storage", "209702892Ki"),
        ("hugepages-1Gi", "0"),
        ("hugepages-2Mi", "0"),
        ("memory", "64832112Ki"),
        ("pods", "110"),
        ("example.com/accelerator", "0"),
    ];

    const INFO: [(&str, &str); 10] = [
        ("machineID", "ec2f3b0a5f7c4f4b9a0b0b6f4b1c2d3e"),
        ("systemUUID", "ec2f3b0a-5f7c-4f4b-9a0b-0b6f4b1c2d3e"),
        ("bootID", "7f6f5f3e-3f0d-4a57-9e2b-1a2b3c4d5e6f"),
        ("kernelVersion", "6.12.43-cloud-amd64"),
        ("osImage", "Debian GNU/Linux 13 (trixie)"),
        ("containerRuntimeVersion", "containerd://2.2.1"),
        ("kubeletVersion", "v1.35.4"),
        ("kubeProxyVersion", ""),
        ("operatingSystem", "linux"),
        ("architecture", "amd64"),
    ];

    /// What server-side apply remembers: who wrote which field.
    fn managed(&self) -> [(&'static str, &'static str, Value); 3] {
        let fields = |keys: &[String]| -> Value {
            keys.iter()
                .map(|key| (format!("f:{key}"), json!({})))
                .collect()
        };
        let labels: Vec<String> = self.labels().map(|(key, _)| key).into();
        let resources = Self::RESOURCES.map(|(key, _)| key.to_owned());
        let conditions: Value = Self::CONDITIONS
            .iter()
            .map(|[kind, ..]| {
                let key = format!(r#"k:{{"type":"{kind}"}}"#);
                let value = json!({
                    ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {},
                    "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {},
                });
                (key, value)
            })
            .collect();
        [
            (
                "kubelet",
                "",
                json!({"f:metadata": {"f:annotations": {".": {}}, "f:labels": fields(&labels)},
                    "f:spec": {"f:providerID": {}}}),
            ),
            (
                "kube-controller-manager",
                "",
                json!({"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {".": {}, "v:\"10.0.0.0/24\"": {}}}}),
            ),
            (
                "kubelet",
                "status",
                json!({"f:status": {"f:allocatable": fields(&resources), "f:capacity": fields(&resources),
                    "f:conditions": conditions, "f:images": {},
                    "f:nodeInfo": fields(&Self::INFO.map(|(key, _)| key.to_owned()))}}),
            ),
        ]
    }

    /// Seconds since 1970 of the last heartbeat.
    fn heartbeat(&self) -> u64 {
        EPOCH + 86_400 * 300 + self.beats * 10
    }

    fn created(&self) -> u64 {
        EPOCH + u64::from(self.number)
    }

    fn json(&self) -> Value {
        let map = |entries: &[(String, String)]| -> Value { entries.iter().cloned().collect() };
        let pairs = |entries: &[(&str, &str)]| -> Value {
            entries
                .iter()
                .map(|(key, value)| (*key, Value::from(*value)))
                .collect()
        };
        let created = timestamp(self.created());
        let managed: Vec<Value> = self
            .managed()
            .into_iter()
            .map(|(manager, subresource, fields)| {
                json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": created,
                    "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource})
            })
            .collect();
        let conditions: Vec<Value> = Self::CONDITIONS
            .iter()
            .map(|[kind, status, reason, message]| {
                json!({"type": kind, "status": status, "reason": reason, "message": message,
                    "lastHeartbeatTime": timestamp(self.heartbeat()), "lastTransitionTime": created})
            })
            .collect();
        let images: Vec<Value> = Self::images()
            .map(|(names, size)| json!({"names": names, "sizeBytes": size}))
            .collect();
        json!({
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": self.name, "uid": self.uid(), "resourceVersion": self.version.to_string(),
                "creationTimestamp": created, "labels": map(&self.labels()),
                "annotations": map(&self.annotations()), "managedFields": managed,
            },
            "spec": {
                "podCIDR": self.pod_cidr, "podCIDRs": [self.pod_cidr],
                "providerID": format!("example:///region-north-1b/i-{:017x}", self.number),
            },
            "status": {
                "capacity": pairs(&Self::RESOURCES), "allocatable": pairs(&Self::RESOURCES),
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": self.address},
                    {"type": "Hostname", "address": self.name},
                    {"type": "InternalDNS", "address": self.name},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": pairs(&Self::INFO),
                "images": images,
            },
        })
    }

    fn protobuf(&self) -> Vec<u8> {
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
        for (manager, subresource, fields) in self.managed() {
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
            for (name, quantity) in Self::RESOURCES {
                let quantity = Message::default().text(1, quantity);
                let entry = Message::default().text(1, name).message(2, quantity);
                status = status.message(field, entry);
            }
        }
        status = status.text(3, "");
        for [kind, is, reason, message] in Self::CONDITIONS {
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
        let info = Self::INFO
            .iter()
            .zip(1..)
            .fold(Message::default(), |info, ((_, value), field)| {
                info.text(field, value)
            });
        status = status.message(7, info);
        for (names, size) in Self::images() {
            let image = names
                .iter()
                .fold(Message::default(), |image, name| image.text(1, name));
            status = status.message(8, image.number(2, size));
        }
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, status)
            .into_bytes()
    }
}

/// As the API writes times: RFC 3339 in UTC. Days by the civil calendar
/// (Hinnant, "chrono-compatible low-level date algorithms").
fn timestamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_real_ones() {
        let Encoded { json, protobuf } = FleetNode::numbered(4711).encode();
        assert!((18_000..23_000).contains(&json.len()), "{}", json.len());
        assert!(
            (9_000..12_000).contains(&protobuf.len()),
            "{}",
            protobuf.len()
        );
    }

    #[test]
    fn times_are_written_as_the_api_writes_them() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(1_795_255_200), "2026-11-21T10:00:00Z");
        assert_eq!(timestamp(1_709_208_000), "2024-02-29T12:00:00Z");
    }
}
