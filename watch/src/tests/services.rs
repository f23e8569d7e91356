//! Examples of Services and what belongs to them for the tests of all kinds.

use serde_json::{Value, json};

use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice, SERVICE_LABEL, SlicePort};
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::service_cidr::ServiceCidr;

use super::kinds::{TestKind, VALUE, json_metadata};
use super::message::Message;

impl TestKind for Service {
    const NAMESPACE: &'static str = "shop";

    fn object(name: &str, value: &str) -> Self {
        Self {
            namespace: Self::NAMESPACE.to_owned(),
            name: name.to_owned(),
            created: Some(1_795_255_200),
            not_ours: false,
            kind: "LoadBalancer".to_owned(),
            cluster_ips: vec![value.to_owned()],
            external_ips: vec!["198.51.100.7".to_owned()],
            load_balancer_ips: vec!["203.0.113.9".to_owned()],
            source_ranges: vec!["203.0.113.0/24".to_owned()],
            ports: vec![ServicePort {
                name: "web".to_owned(),
                protocol: "UDP".to_owned(),
                port: 80,
                node_port: 30080,
            }],
            affinity_seconds: Some(60),
            internal_local: true,
            external_local: true,
            health_check_node_port: 31000,
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": value,
                "clusterIPs": [value],
                "externalIPs": ["198.51.100.7"],
                "selector": {"app": "web"},
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "internalTrafficPolicy": "Local",
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 31000,
                "loadBalancerSourceRanges": ["203.0.113.0/24"],
                "ports": [{"name": "web", "protocol": "UDP", "port": 80, "nodePort": 30080}],
            },
            "status": {"loadBalancer": {"ingress": [
                {"ip": "203.0.113.9", "ipMode": "VIP"},
                {"ip": "203.0.113.10", "ipMode": "Proxy"},
            ]}},
        })
    }

    fn message(metadata: Message) -> Message {
        let target = Message::default().number(1, 0).number(2, 8080).text(3, "");
        let port = Message::default()
            .text(1, "web")
            .text(2, "UDP")
            .number(3, 80)
            .message(4, target)
            .number(5, 30080);
        let selector = Message::default().text(1, "app").text(2, "web");
        let timeout = Message::default().message(1, Message::default().number(1, 60));
        let spec = Message::default()
            .message(1, port)
            .message(2, selector)
            .text(3, VALUE)
            .text(4, "LoadBalancer")
            .text(5, "198.51.100.7")
            .text(7, "ClientIP")
            .text(8, "")
            .text(9, "203.0.113.0/24")
            .text(11, "Local")
            .number(12, 31000)
            .number(13, 0)
            .message(14, timeout)
            .text(17, "SingleStack")
            .text(18, VALUE)
            .text(19, "IPv4")
            .number(20, 1)
            .text(22, "Local");
        let ingress = |ip, mode| Message::default().text(1, ip).text(2, "").text(3, mode);
        let balancer = Message::default()
            .message(1, ingress("203.0.113.9", "VIP"))
            .message(1, ingress("203.0.113.10", "Proxy"));
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, Message::default().message(1, balancer))
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["spec"]["clusterIPs"] = json!(7);
        (json, Self::object(name, "7"))
    }
}

impl TestKind for EndpointSlice {
    const NAMESPACE: &'static str = "shop";

    fn object(name: &str, value: &str) -> Self {
        let hints = |name: &str| vec![name.to_owned()];
        Self {
            namespace: Self::NAMESPACE.to_owned(),
            name: name.to_owned(),
            service: String::new(),
            not_ours: false,
            endpoints: vec![Endpoint {
                address: value.to_owned(),
                ready: false,
                serving: true,
                terminating: true,
                node: "worker-1".to_owned(),
                zone_hints: hints("z1"),
                node_hints: hints("worker-1"),
            }],
            ports: vec![SlicePort {
                name: "web".to_owned(),
                protocol: "UDP".to_owned(),
                port: 8080,
            }],
            triggered: None,
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": [value],
                "conditions": {"ready": false, "serving": true, "terminating": true},
                "nodeName": "worker-1",
                "zone": "z1",
                "hints": {"forZones": [{"name": "z1"}], "forNodes": [{"name": "worker-1"}]},
            }],
            "ports": [{"name": "web", "protocol": "UDP", "port": 8080}],
        })
    }

    fn message(metadata: Message) -> Message {
        let conditions = Message::default().number(1, 0).number(2, 1).number(3, 1);
        let named = |name| Message::default().text(1, name);
        let hints = Message::default()
            .message(1, named("z1"))
            .message(2, named("worker-1"));
        let endpoint = Message::default()
            .text(1, VALUE)
            .message(2, conditions)
            .text(6, "worker-1")
            .text(7, "z1")
            .message(8, hints);
        let port = named("web").text(2, "UDP").number(3, 8080);
        Message::default()
            .message(1, metadata)
            .message(2, endpoint)
            .message(3, port)
            .text(4, "IPv4")
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["metadata"]["labels"][SERVICE_LABEL] = json!(7);
        let object = Self {
            service: "7".to_owned(),
            ..Self::object(name, VALUE)
        };
        (json, object)
    }
}

impl TestKind for ServiceCidr {
    const NAMESPACE: &'static str = "";

    fn object(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            cidrs: vec![value.to_owned(), "fd00:96::/112".to_owned()],
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": {"cidrs": [value, "fd00:96::/112"]},
            "status": {"conditions": []},
        })
    }

    fn message(metadata: Message) -> Message {
        let spec = Message::default().text(1, VALUE).text(1, "fd00:96::/112");
        Message::default()
            .message(1, metadata)
            .message(2, spec)
            .message(3, Message::default())
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["spec"]["cidrs"] = json!([7, "fd00:96::/112"]);
        (json, Self::object(name, "7"))
    }
}
