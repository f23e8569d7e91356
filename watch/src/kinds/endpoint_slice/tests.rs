use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::*;

fn slice(value: Value) -> EndpointSlice {
    EndpointSlice::from_fields(serde_json::from_value(value).unwrap()).unwrap()
}

fn endpoint(address: &str) -> Endpoint {
    Endpoint {
        address: address.to_owned(),
        ready: true,
        serving: true,
        terminating: false,
        node: String::new(),
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    }
}

fn port(name: &str, protocol: &str, port: u16) -> SlicePort {
    SlicePort {
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        port,
    }
}

#[test]
fn a_slice_as_the_api_writes_it() {
    let found = slice(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "web-x7z",
            "namespace": "shop",
            "labels": {
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "annotations": {
                "endpoints.kubernetes.io/last-change-trigger-time": "2026-11-21T10:00:00.25Z",
            },
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.244.1.7", "10.244.1.8"],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "worker-1",
                "zone": "z1",
                "targetRef": {"kind": "Pod", "name": "web-0"},
                "hints": {"forZones": [{"name": "z1"}, {"name": "z2"}], "forNodes": [{"name": "worker-1"}]},
            },
            {"addresses": ["10.244.2.9"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": []},
        ],
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 8080},
            {"name": "dns", "protocol": "UDP", "port": 53},
            {"name": "all"},
        ],
    }));
    let expected = EndpointSlice {
        namespace: "shop".to_owned(),
        name: "web-x7z".to_owned(),
        service: "web".to_owned(),
        not_ours: false,
        endpoints: vec![
            Endpoint {
                node: "worker-1".to_owned(),
                zone_hints: vec!["z1".to_owned(), "z2".to_owned()],
                node_hints: vec!["worker-1".to_owned()],
                ..endpoint("10.244.1.7")
            },
            Endpoint {
                ready: false,
                terminating: true,
                ..endpoint("10.244.2.9")
            },
        ],
        ports: vec![port("http", "TCP", 8080), port("dns", "UDP", 53)],
        triggered: Some(UNIX_EPOCH + Duration::from_millis(1_795_255_200_250)),
    };
    assert_eq!(found, expected);
}

#[test]
fn what_a_source_does_not_say_has_the_defaults_of_the_api() {
    for conditions in [json!(null), json!({}), json!({"ready": null})] {
        let found = slice(json!({
            "metadata": {"name": "a", "annotations": {TRIGGERED: "yesterday"}},
            "endpoints": [{"addresses": ["::1"], "conditions": conditions, "hints": null}],
            "ports": [{"port": 80}],
        }));
        assert_eq!(found.service, "");
        assert_eq!(found.endpoints, [endpoint("::1")]);
        assert_eq!(found.ports, [port("", "TCP", 80)]);
        assert_eq!(found.triggered, None);
    }
    for value in [
        json!({"metadata": {"name": "a"}, "endpoints": null, "ports": null}),
        json!({"metadata": {"name": "a"}}),
    ] {
        let found = slice(value);
        assert!(found.endpoints.is_empty() && found.ports.is_empty());
    }
}

#[test]
fn labels_give_a_slice_away() {
    for (label, expected) in [
        ("service.kubernetes.io/service-proxy-name", true),
        ("service.kubernetes.io/headless", true),
        ("app", false),
    ] {
        let labels = json!({"kubernetes.io/service-name": "web", label: ""});
        let found = slice(json!({"metadata": {"name": "a", "labels": labels}}));
        assert_eq!(
            (found.not_ours, &*found.service),
            (expected, "web"),
            "{label}"
        );
    }
}

#[test]
fn a_field_of_the_wrong_type_affects_no_other() {
    let found = slice(json!({
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": 7}},
        "endpoints": [
            5,
            {"addresses": 6, "conditions": {"ready": "yes"}, "hints": {"forZones": [7, {"name": 8}]}},
        ],
        "ports": [5, {"port": "80"}, {"port": 90, "protocol": 6}],
    }));
    assert_eq!(found.service, "7");
    let expected = Endpoint {
        ready: false,
        zone_hints: vec![String::new(), "8".to_owned()],
        ..endpoint("6")
    };
    assert_eq!(found.endpoints, [expected]);
    assert_eq!(found.ports, [port("", "6", 90)]);
}
