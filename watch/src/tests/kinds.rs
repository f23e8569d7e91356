//! The kinds over which the tests run, with examples of their objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use tweed_core::object::ObjectKey;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::node::{Node, NodeAddress, TO_BE_DELETED};
use tweed_core::object::pod::{NamedPort, Pod};
use tweed_core::object::selector::Labels;

use super::message::Message;
use crate::kind::Kind;

/// The value of objects where a test does not choose one.
pub(super) const VALUE: &str = "192.0.2.1";

/// Makes tests of generic functions, one for each kind. `async` before the names
/// says that the functions are asynchronous.
macro_rules! for_each_kind {
    (async $($test:ident),* $(,)?) => {
        $crate::tests::kinds::of_kind!(nodes, node::Node, async $($test),*);
        $crate::tests::kinds::of_kind!(pods, pod::Pod, async $($test),*);
        $crate::tests::kinds::of_kind!(namespaces, namespace::Namespace, async $($test),*);
        $crate::tests::kinds::of_kind!(
            network_policies, network_policy::NetworkPolicy, async $($test),*
        );
        $crate::tests::kinds::of_kind!(
            cluster_network_policies, cluster_network_policy::ClusterNetworkPolicy,
            async $($test),*
        );
        $crate::tests::kinds::of_kind!(services, service::Service, async $($test),*);
        $crate::tests::kinds::of_kind!(
            endpoint_slices, endpoint_slice::EndpointSlice, async $($test),*
        );
        $crate::tests::kinds::of_kind!(
            service_cidrs, service_cidr::ServiceCidr, async $($test),*
        );
    };
    ($($test:ident),* $(,)?) => {
        $crate::tests::kinds::of_kind!(nodes, node::Node, $($test),*);
        $crate::tests::kinds::of_kind!(pods, pod::Pod, $($test),*);
        $crate::tests::kinds::of_kind!(namespaces, namespace::Namespace, $($test),*);
        $crate::tests::kinds::of_kind!(
            network_policies, network_policy::NetworkPolicy, $($test),*
        );
        $crate::tests::kinds::of_kind!(
            cluster_network_policies, cluster_network_policy::ClusterNetworkPolicy, $($test),*
        );
        $crate::tests::kinds::of_kind!(services, service::Service, $($test),*);
        $crate::tests::kinds::of_kind!(
            endpoint_slices, endpoint_slice::EndpointSlice, $($test),*
        );
        $crate::tests::kinds::of_kind!(service_cidrs, service_cidr::ServiceCidr, $($test),*);
    };
}
pub(crate) use for_each_kind;

macro_rules! of_kind {
    ($kinds:ident, $module:ident::$kind:ident, async $($test:ident),*) => {
        mod $kinds {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<tweed_core::object::$module::$kind>().await;
            })*
        }
    };
    ($kinds:ident, $module:ident::$kind:ident, $($test:ident),*) => {
        mod $kinds {
            $(#[test]
            fn $test() {
                super::$test::<tweed_core::object::$module::$kind>();
            })*
        }
    };
}
pub(crate) use of_kind;

/// A kind and examples of its objects. Each object has one value that a test may
/// choose.
pub(super) trait TestKind: Kind {
    /// The namespace of the examples; empty for kinds without namespaces.
    const NAMESPACE: &'static str;

    fn object(name: &str, value: &str) -> Self;
    fn json(name: &str, version: &str, value: &str) -> Value;
    /// The message of an object with this `metadata`.
    fn message(metadata: Message) -> Message;
    /// An object with a field of the wrong type, and what it is decoded to.
    fn odd(name: &str, version: &str) -> (Value, Self);

    /// The key of the example of this name.
    fn example(name: &str) -> ObjectKey {
        ObjectKey {
            name: name.to_owned(),
            namespace: Self::NAMESPACE.to_owned(),
        }
    }
}

pub(super) fn team(value: &str) -> Labels {
    BTreeMap::from([("team".to_owned(), value.to_owned())])
}

impl TestKind for Node {
    const NAMESPACE: &'static str = "";

    fn object(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            created: Some(1_795_255_200),
            pod_cidrs: vec!["10.244.1.0/24".to_owned()],
            addresses: vec![NodeAddress {
                kind: "InternalIP".to_owned(),
                address: value.to_owned(),
            }],
            labels: team(VALUE).into(),
            leaving: true,
            not_ready: true,
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": {
                "podCIDR": "10.244.1.0/24",
                "podCIDRs": ["10.244.1.0/24"],
                "taints": [{"key": TO_BE_DELETED, "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [{"type": "InternalIP", "address": value}],
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "images": [{"names": ["registry/image"], "sizeBytes": 1}],
            },
        })
    }

    fn message(metadata: Message) -> Message {
        let cidr = "10.244.1.0/24";
        let taint = Message::default()
            .text(1, TO_BE_DELETED)
            .text(3, "NoSchedule");
        let cidrs = Message::default().text(1, cidr).text(7, cidr);
        let spec = cidrs.number(4, 1).message(5, taint);
        let condition = Message::default().text(1, "Ready").text(2, "Unknown");
        let address = Message::default().text(1, "InternalIP").text(2, VALUE);
        let image = Message::default().text(1, "registry/image").number(2, 1);
        let status = Message::default()
            .message(4, condition)
            .message(5, address)
            .message(8, image);
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, status)
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["spec"] = json!({"podCIDRs": 7});
        let object = Self {
            pod_cidrs: vec!["7".to_owned()],
            leaving: false,
            ..Self::object(name, VALUE)
        };
        (json, object)
    }
}

impl TestKind for Namespace {
    const NAMESPACE: &'static str = "";

    fn object(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: team(value),
            terminating: false,
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, value),
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    }

    fn message(metadata: Message) -> Message {
        let status = Message::default().text(1, "Active");
        Message::default().message(1, metadata).message(3, status)
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["metadata"]["labels"]["team"] = json!(7);
        (json, Self::object(name, "7"))
    }
}

impl TestKind for Pod {
    const NAMESPACE: &'static str = "shop";

    fn object(name: &str, value: &str) -> Self {
        Self {
            namespace: Self::NAMESPACE.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            mirror: None,
            created: Some(1_795_255_200),
            labels: team(VALUE),
            node: "worker-1".to_owned(),
            host_network: true,
            ports: vec![NamedPort {
                name: "web".to_owned(),
                protocol: "TCP".to_owned(),
                port: 8080,
            }],
            addresses: vec![value.to_owned()],
            finished: true,
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": {
                "nodeName": "worker-1",
                "hostNetwork": true,
                "containers": [{
                    "name": "c",
                    "image": "registry/image",
                    "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}],
                }],
            },
            "status": {"phase": "Succeeded", "podIP": value, "podIPs": [{"ip": value}]},
        })
    }

    fn message(metadata: Message) -> Message {
        let port = Message::default()
            .text(1, "web")
            .number(2, 0)
            .number(3, 8080)
            .text(4, "TCP");
        let container = Message::default()
            .text(1, "c")
            .text(2, "registry/image")
            .message(6, port);
        let spec = Message::default()
            .message(2, container)
            .text(3, "Always")
            .text(10, "worker-1")
            .number(11, 1);
        let status = Message::default()
            .text(1, "Succeeded")
            .text(5, "192.0.2.9")
            .text(6, VALUE)
            .message(12, Message::default().text(1, VALUE));
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, status)
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["status"]["podIPs"] = json!(7);
        (json, Self::object(name, "7"))
    }
}

pub(super) fn json_metadata<K: TestKind>(name: &str, version: &str, label: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "uid": format!("uid-{name}"),
        "resourceVersion": version,
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"team": label},
        "managedFields": [{"manager": "kubelet"}],
    });
    if !K::NAMESPACE.is_empty() {
        metadata["namespace"] = json!(K::NAMESPACE);
    }
    metadata
}

/// The same in protobuf, with the label that is not chosen.
pub(super) fn message_metadata<K: TestKind>(name: &str, version: &str) -> Message {
    let time = Message::default().number(1, 1_795_255_200).number(2, 0);
    let label = Message::default().text(1, "team").text(2, VALUE);
    Message::default()
        .text(1, name)
        .text(3, K::NAMESPACE)
        .text(5, &format!("uid-{name}"))
        .text(6, version)
        .number(7, 0)
        .message(8, time)
        .message(11, label)
        .fixed(99)
}
