use serde_json::{Value, json};

use super::*;

fn service(value: Value) -> Service {
    Service::from_fields(serde_json::from_value(value).unwrap()).unwrap()
}

fn named(name: &str) -> Service {
    Service {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        kind: "ClusterIP".to_owned(),
        ..Service::default()
    }
}

fn port(name: &str, protocol: &str, port: u16, node_port: u16) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        port,
        node_port,
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_service_as_the_api_writes_it() {
    let found = service(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "7a1b",
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10", "fd00:96::a"],
            "externalIPs": ["198.51.100.7"],
            "selector": {"app": "web"},
            "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv4", "IPv6"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000,
            "loadBalancerSourceRanges": ["203.0.113.0/24 "],
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 53},
            ],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.9", "ipMode": "VIP", "ports": []},
            {"ip": "203.0.113.10", "ipMode": "Proxy"},
            {"ip": "2001:db8::9"},
            {"hostname": "lb.example"},
        ]}},
    }));
    let expected = Service {
        namespace: "shop".to_owned(),
        created: Some(1_795_255_200),
        kind: "LoadBalancer".to_owned(),
        cluster_ips: texts(&["10.96.0.10", "fd00:96::a"]),
        external_ips: texts(&["198.51.100.7"]),
        load_balancer_ips: texts(&["203.0.113.9", "2001:db8::9"]),
        source_ranges: texts(&["203.0.113.0/24 "]),
        ports: vec![port("http", "TCP", 80, 30080), port("dns", "UDP", 53, 0)],
        affinity_seconds: Some(60),
        external_local: true,
        health_check_node_port: 31000,
        ..named("web")
    };
    assert_eq!(found, expected);
}

#[test]
fn a_service_can_be_as_good_as_empty() {
    for value in [
        json!({"metadata": {"name": "a"}}),
        json!({"metadata": {"name": "a"}, "spec": null, "status": null}),
        json!({"metadata": {"name": "a"}, "spec": {"ports": null}, "status": {"loadBalancer": {}}}),
        json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
        json!({"metadata": {"name": "a"}, "spec": {"sessionAffinity": "None"}, "status": {"loadBalancer": {"ingress": [null]}}}),
    ] {
        assert_eq!(service(value), named("a"));
    }
}

#[test]
fn the_old_cluster_ip_alone_is_enough() {
    let value = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.1"}});
    assert_eq!(service(value).cluster_ips, ["10.96.0.1"]);
}

#[test]
fn affinity_without_a_timeout_has_the_default() {
    for config in [
        json!(null),
        json!({}),
        json!({"clientIP": null}),
        json!({"clientIP": {"timeoutSeconds": null}}),
        json!({"clientIP": {"timeoutSeconds": -5}}),
    ] {
        let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
        let found = service(json!({"metadata": {"name": "a"}, "spec": spec}));
        assert_eq!(found.affinity_seconds, Some(10_800), "{config}");
    }
}

#[test]
fn labels_give_a_service_away() {
    for (label, expected) in [
        ("service.kubernetes.io/service-proxy-name", true),
        ("service.kubernetes.io/headless", true),
        ("app", false),
    ] {
        let value = json!({"metadata": {"name": "a", "labels": {label: ""}}});
        assert_eq!(service(value).not_ours, expected, "{label}");
    }
}

#[test]
fn a_field_of_the_wrong_type_affects_no_other() {
    let found = service(json!({
        "metadata": {"name": 7},
        "spec": {
            "type": 8,
            "clusterIPs": 9,
            "externalIPs": [1, "198.51.100.7"],
            "sessionAffinity": {},
            "healthCheckNodePort": "x",
            "ports": [5, {"port": 0}, {"port": 70000}, {"port": 80, "nodePort": 70000, "protocol": 6}],
        },
        "status": {"loadBalancer": 7},
    }));
    let expected = Service {
        kind: "8".to_owned(),
        cluster_ips: texts(&["9"]),
        external_ips: texts(&["1", "198.51.100.7"]),
        ports: vec![port("", "6", 80, 0)],
        ..named("7")
    };
    assert_eq!(found, expected);
}
