//! Decoding of Pods.
//!
//! Which containers' ports have names that count: those of all containers, and of init
//! containers with `restartPolicy: Always`, which run beside them ("sidecars"). So does
//! `FindPort` of Kubernetes (`k8s.io/endpointslice/utils.go`) for the named ports of Services,
//! in the same order. Other init containers have ended when the pod serves.
//!
//! A field of the wrong type is passed on as text, or is as good as absent where it
//! can be no text; it invalidates neither the Pod nor its neighbours in a list.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use tweed_core::object::pod::{NamedPort, Pod};

use super::metadata::Metadata;
use super::{items, list_or_first, lossy, text};
use crate::kind::{InvalidName, Kind};

/// The kubelet sets it on the Pod that it makes for a static pod. Its value is the UID
/// of the static pod (`kubernetes.io/config.hash`), which the API server replaces by
/// one of its own (`pkg/kubelet/pod/mirror_client.go`).
const MIRROR: &str = "kubernetes.io/config.mirror";

message! {
    /// The used fields of a Pod.
    pub struct PodFields {
        metadata: one(Metadata) = 1,
        spec: object(Spec) = 2,
        status: object(Status) = 3,
    }

    struct Spec {
        containers: objects(Container) = 2,
        node_name: text = 10,
        #[prost(bool, tag = "11")]
        #[serde(deserialize_with = "is_set")]
        host_network: bool,
        init_containers: objects(Container) = 20,
    }

    struct Container {
        ports: objects(Port) = 6,
        restart_policy: text = 24,
    }

    struct Port {
        name: text = 1,
        container_port: number = 3,
        protocol: text = 4,
    }

    struct Status {
        phase: text = 1,
        pod_ip: text = 6 as "podIP",
        #[prost(message, repeated, tag = "12")]
        #[serde(rename = "podIPs", deserialize_with = "pod_ips")]
        pod_ips: Vec<PodIp>,
    }
}

#[derive(prost::Message)]
struct PodIp {
    #[prost(bytes = "vec", tag = "1")]
    ip: Vec<u8>,
}

impl Kind for Pod {
    const NAME: &'static str = "Pod";
    const PATH: &'static str = "/api/v1/pods";
    type Fields = PodFields;

    fn from_fields(fields: PodFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        let spec = fields.spec.unwrap_or_default();
        let status = fields.status.unwrap_or_default();
        let stays = |container: &Container| container.restart_policy == b"Always";
        let init_containers = spec.init_containers.into_iter().filter(stays);
        let containers = spec.containers.into_iter().chain(init_containers);
        let ports = containers.flat_map(|container| container.ports);
        let pod_ips = status.pod_ips.into_iter().map(|pod| pod.ip).collect();
        Ok(Self {
            namespace: metadata.namespace()?,
            name: metadata.name(Self::NAME)?,
            created: metadata.created(),
            labels: metadata.labels(),
            mirror: metadata.annotation(MIRROR),
            uid: lossy(metadata.uid),
            node: lossy(spec.node_name),
            host_network: spec.host_network,
            ports: ports.filter_map(Port::named).collect(),
            addresses: list_or_first(pod_ips, vec![status.pod_ip]),
            finished: matches!(&*status.phase, b"Succeeded" | b"Failed"),
        })
    }
}

impl Port {
    /// The port, if it has a name and a number that a port can have.
    fn named(self) -> Option<NamedPort> {
        let port = u16::try_from(self.container_port).ok()?;
        if port == 0 || self.name.is_empty() {
            return None;
        }
        Some(NamedPort {
            name: lossy(self.name),
            protocol: super::protocol(self.protocol),
            port,
        })
    }
}

/// What is no boolean makes the pod's address that of no peer.
fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(!matches!(value, Value::Null | Value::Bool(false)))
}

/// What is no entry of a Pod is passed on as an address that is invalid.
fn pod_ips<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PodIp>, D::Error> {
    let ip = |mut entry: Value| match entry.get_mut("ip").map(Value::take) {
        Some(Value::Null) => Vec::new(),
        Some(ip) => text(ip),
        None if entry.is_object() => Vec::new(),
        None => text(entry),
    };
    let entries = items(deserializer)?.into_iter();
    Ok(entries.map(|entry| PodIp { ip: ip(entry) }).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: Value) -> Pod {
        Pod::from_fields(serde_json::from_value(value).unwrap()).unwrap()
    }

    fn named(name: &str) -> Pod {
        Pod {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            ..Pod::default()
        }
    }

    fn port(name: &str, protocol: &str, port: u16) -> NamedPort {
        NamedPort {
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            port,
        }
    }

    #[test]
    fn a_pod_as_the_api_writes_it() {
        let found = pod(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web-0",
                "namespace": "shop",
                "uid": "7a1b",
                "creationTimestamp": "2026-11-21T10:00:00Z",
                "labels": {"app": "web"},
                "ownerReferences": [{"kind": "StatefulSet"}],
            },
            "spec": {
                "nodeName": "worker-1",
                "initContainers": [
                    {"name": "i", "ports": [{"name": "setup", "containerPort": 1}]},
                    {
                        "name": "proxy",
                        "restartPolicy": "Always",
                        "ports": [{"name": "admin", "containerPort": 15000, "protocol": "TCP"}],
                    },
                ],
                "containers": [
                    {"name": "c", "ports": [
                        {"name": "web", "containerPort": 8080, "protocol": "TCP"},
                        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                        {"containerPort": 9, "protocol": "TCP"},
                    ]},
                    {"name": "d", "env": [{"name": "A", "value": "B"}]},
                ],
            },
            "status": {
                "phase": "Running",
                "podIP": "10.244.1.7",
                "podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00:1::7"}],
            },
        }));
        let expected = Pod {
            namespace: "shop".to_owned(),
            uid: "7a1b".to_owned(),
            created: Some(1_795_255_200),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            node: "worker-1".to_owned(),
            ports: vec![
                port("web", "TCP", 8080),
                port("dns", "UDP", 53),
                port("admin", "TCP", 15000),
            ],
            addresses: vec!["10.244.1.7".to_owned(), "fd00:1::7".to_owned()],
            ..named("web-0")
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pod_can_be_as_good_as_empty() {
        for value in [
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a"}, "spec": null, "status": null}),
            json!({"metadata": {"name": "a"}, "spec": {"containers": null}, "status": {}}),
            json!({
                "metadata": {"name": "a", "namespace": ""},
                "spec": {"containers": [null, {}], "hostNetwork": false},
                "status": {"phase": "Pending", "podIP": "", "podIPs": [{"ip": ""}, {}]},
            }),
        ] {
            assert_eq!(pod(value), named("a"));
        }
    }

    #[test]
    fn a_static_pod_has_the_uid_that_the_kubelet_gave_it() {
        let value = json!({"metadata": {
            "name": "etcd-cp",
            "uid": "7a1b",
            "annotations": {
                "kubernetes.io/config.hash": "9f",
                "kubernetes.io/config.mirror": "9f",
                "kubernetes.io/config.source": "file",
            },
        }});
        assert_eq!(pod(value).kubelet_uid(), Some("9f"));
        // `annotations`, field 12 of `ObjectMeta`, with one entry.
        let key = MIRROR.as_bytes();
        let entry = [&[0x0a, key.len() as u8], key, &[0x12, 2], b"9f"].concat();
        let metadata = [
            &[0x0a, 7],
            b"etcd-cp".as_slice(),
            &[0x62, entry.len() as u8],
            &entry,
        ]
        .concat();
        let bytes = [&[0x0a, metadata.len() as u8], metadata.as_slice()].concat();
        let decoded: PodFields = prost::Message::decode(bytes.as_slice()).unwrap();
        let decoded = Pod::from_fields(decoded).unwrap();
        assert_eq!(decoded.kubelet_uid(), Some("9f"));
        for (uid, expected) in [("7a1b", Some("7a1b")), ("", None)] {
            let value = json!({"metadata": {"name": "a", "uid": uid, "annotations": 7}});
            assert_eq!(pod(value).kubelet_uid(), expected);
        }
    }

    #[test]
    fn the_old_pod_ip_alone_is_enough() {
        let value = json!({"metadata": {"name": "a"}, "status": {"podIP": "10.244.1.7"}});
        assert_eq!(pod(value).addresses, ["10.244.1.7"]);
    }

    #[test]
    fn a_pod_that_has_ended_says_so() {
        for (phase, finished) in [
            ("Succeeded", true),
            ("Failed", true),
            ("Running", false),
            ("Unknown", false),
        ] {
            let value = json!({"metadata": {"name": "a"}, "status": {"phase": phase}});
            assert_eq!(pod(value).finished, finished, "{phase}");
        }
    }

    #[test]
    fn a_field_of_the_wrong_type_affects_no_other() {
        let found = pod(json!({
            "metadata": {"name": 7, "namespace": 8, "labels": {"a": true}},
            "spec": {
                "nodeName": 9,
                "hostNetwork": "yes",
                "containers": [5, {"ports": [
                    "web",
                    {"name": "big", "containerPort": 70000},
                    {"name": "text", "containerPort": "80"},
                    {"name": "none", "containerPort": 0},
                    {"name": "good", "containerPort": 80, "protocol": 6},
                ]}, {"ports": 7}],
                "initContainers": "none",
            },
            "status": {"phase": ["Failed"], "podIPs": ["10.244.1.7", {"ip": 5}, 6]},
        }));
        let expected = Pod {
            namespace: "8".to_owned(),
            labels: [("a".to_owned(), "true".to_owned())].into(),
            node: "9".to_owned(),
            host_network: true,
            ports: vec![port("good", "6", 80)],
            addresses: ["10.244.1.7", "5", "6"].map(str::to_owned).to_vec(),
            ..named("7")
        };
        assert_eq!(found, expected);
        for value in [json!(7), json!("x"), json!([])] {
            let found = pod(json!({"metadata": {"name": "a"}, "spec": value, "status": value}));
            assert_eq!(found, named("a"));
        }
    }

    #[test]
    fn a_namespace_that_cannot_exist_is_refused() {
        let fields = json!({"metadata": {"name": "a", "namespace": "a b"}});
        let refused = Pod::from_fields(serde_json::from_value(fields).unwrap());
        let message = refused.unwrap_err().to_string();
        assert_eq!(message, "is in the namespace \"a b\", which cannot exist");
    }
}
