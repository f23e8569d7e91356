use serde_json::json;

use tweed_core::object::network_policy::{Port, PortMatch};
use tweed_core::object::selector::{Operator, Requirement};

use super::*;

fn policy(spec: &Value) -> NetworkPolicy {
    let value = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
    NetworkPolicy::from_fields(serde_json::from_value(value).unwrap()).unwrap()
}

/// The only rule of a policy with this one for ingress.
fn ingress(rule: Value) -> Rule {
    let mut rules = policy(&json!({ "ingress": [rule] })).ingress;
    assert_eq!(rules.len(), 1);
    rules.remove(0)
}

fn peer(peer: Value) -> Peer {
    let mut peers = ingress(json!({ "from": [peer] })).peers;
    assert_eq!(peers.len(), 1);
    peers.remove(0)
}

fn port(port: Value) -> PortMatch {
    let mut ports = ingress(json!({ "ports": [port] })).ports;
    assert_eq!(ports.len(), 1);
    ports.remove(0).port
}

fn app(value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: [("app".to_owned(), value.to_owned())].into(),
        ..LabelSelector::default()
    }
}

#[test]
fn a_policy_as_the_api_writes_it() {
    let found = policy(&json!({
        "podSelector": {"matchLabels": {"app": "db"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{
            "from": [
                {"podSelector": {"matchLabels": {"app": "web"}}},
                {"namespaceSelector": {}, "podSelector": {"matchExpressions": [
                    {"key": "app", "operator": "NotIn", "values": ["x", "y"]},
                    {"key": "team", "operator": "Exists"},
                ]}},
            ],
            "ports": [
                {"protocol": "TCP", "port": 5432},
                {"port": "metrics"},
                {"protocol": "UDP", "port": 1000, "endPort": 2000},
                {"protocol": "SCTP"},
            ],
        }, {}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}],
    }));
    let requirement = |key: &str, operator, values: &[&str]| Requirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    let expressions = LabelSelector {
        match_expressions: vec![
            requirement("app", Operator::NotIn, &["x", "y"]),
            requirement("team", Operator::Exists, &[]),
        ],
        ..LabelSelector::default()
    };
    let port = |protocol: &str, port| Port {
        protocol: protocol.to_owned(),
        port,
    };
    let expected = NetworkPolicy {
        namespace: "n".to_owned(),
        name: "a".to_owned(),
        uid: String::new(),
        pod_selector: app("db"),
        policy_types: vec!["Ingress".to_owned(), "Egress".to_owned()],
        ingress: vec![
            Rule {
                peers: vec![
                    Peer::Pods {
                        namespace: None,
                        pod: Some(app("web")),
                    },
                    Peer::Pods {
                        namespace: Some(LabelSelector::default()),
                        pod: Some(expressions),
                    },
                ],
                ports: vec![
                    port("TCP", PortMatch::Range(5432, 5432)),
                    port("TCP", PortMatch::Named("metrics".to_owned())),
                    port("UDP", PortMatch::Range(1000, 2000)),
                    port("SCTP", PortMatch::All),
                ],
            },
            Rule::default(),
        ],
        egress: vec![Rule {
            peers: vec![Peer::Block {
                cidr: "10.0.0.0/8".to_owned(),
                except: vec!["10.1.0.0/16".to_owned()],
            }],
            ports: Vec::new(),
        }],
    };
    assert_eq!(found, expected);
}

/// Policies may have tens of thousands of rules, and stay.
#[test]
fn lists_have_no_room_for_more() {
    let rule = json!({
        "from": [{"podSelector": {"matchLabels": {"app": "web"}}}],
        "ports": [{"port": 80}],
    });
    let rules = policy(&json!({ "ingress": [rule, rule, rule] })).ingress;
    assert_eq!(rules.capacity(), 3);
    for Rule { peers, ports } in rules {
        assert_eq!((peers.capacity(), ports.capacity()), (1, 1));
    }
}

#[test]
fn a_policy_can_be_as_good_as_empty() {
    let empty = NetworkPolicy {
        namespace: "n".to_owned(),
        name: "a".to_owned(),
        ..NetworkPolicy::default()
    };
    for spec in [
        json!(null),
        json!({}),
        json!({"podSelector": {}, "ingress": [], "policyTypes": null}),
        json!({"podSelector": null, "ingress": null, "egress": null}),
    ] {
        assert_eq!(policy(&spec), empty, "{spec}");
    }
    let nothing = json!({"from": null, "ports": null});
    assert_eq!(ingress(nothing), Rule::default());
}

#[test]
fn a_peer_that_cannot_be_understood_is_never_as_good_as_absent() {
    for unknown in [
        json!({}),
        json!(null),
        json!(""),
        json!("10.0.0.0/8"),
        json!(7),
        json!({"podSelector": null}),
        json!({"serviceSelector": {}}),
        json!({"podSelector": {}, "serviceSelector": {}}),
        json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
        json!({"ipBlock": "10.0.0.0/8"}),
        json!({"ipBlock": ["10.0.0.0/8", []]}),
        json!([{}]),
        json!({"ipBlock": {"cidr": "10.0.0.0/8", "exept": ["10.1.0.0/16"]}}),
    ] {
        let found = peer(unknown.clone());
        assert!(matches!(found, Peer::Unknown(_)), "{unknown}: {found:?}");
    }
    for rule in [
        json!(null),
        json!(""),
        json!(7),
        json!({"from": ""}),
        json!({"from": 7}),
        json!({"from": {}}),
        json!({"form": [{"podSelector": {}}]}),
        json!({"to": [{"podSelector": {}}]}),
    ] {
        let found = ingress(rule.clone()).peers;
        assert!(
            matches!(&found[..], [Peer::Unknown(_)]),
            "{rule}: {found:?}"
        );
    }
}

#[test]
fn an_address_that_is_none_stays_text() {
    let found = peer(json!({"ipBlock": {"cidr": 7, "except": "10.1.0.0/16"}}));
    let expected = Peer::Block {
        cidr: "7".to_owned(),
        except: vec!["10.1.0.0/16".to_owned()],
    };
    assert_eq!(found, expected);
}

#[test]
fn a_port_that_cannot_be_understood_is_never_all_ports() {
    for invalid in [
        json!(null),
        json!(""),
        json!(80),
        json!({"port": 0}),
        json!({"port": 65536}),
        json!({"port": -1}),
        json!({"port": 8.5}),
        json!({"port": 4_294_967_376_i64}),
        json!({"port": ""}),
        json!({"port": "80"}),
        json!({"port": "8-0"}),
        json!({"port": "Web"}),
        json!({"port": "-web"}),
        json!({"port": "we--b"}),
        json!({"port": "sixteen-letters-"}),
        json!({"port": ["web"]}),
        json!({"endPort": 80}),
        json!({"port": 80, "endPort": 79}),
        json!({"port": 80, "endPort": 65536}),
        json!({"port": 80, "endPort": "90"}),
        json!({"port": "web", "endPort": 90}),
        json!({"port": 80, "sourcePort": 90}),
    ] {
        let found = port(invalid.clone());
        assert!(
            matches!(found, PortMatch::Invalid(_)),
            "{invalid}: {found:?}"
        );
    }
    let ports = ingress(json!({"ports": 7})).ports;
    assert!(matches!(ports[0].port, PortMatch::Invalid(_)), "{ports:?}");
}

#[test]
fn the_limits_of_ports_and_names_are_those_of_the_api() {
    assert_eq!(
        port(json!({"port": 1, "endPort": 65535})),
        PortMatch::Range(1, 65535)
    );
    assert_eq!(
        port(json!({"port": 80, "endPort": 80})),
        PortMatch::Range(80, 80)
    );
    assert_eq!(port(json!({"port": null})), PortMatch::All);
    for name in ["a", "8a", "web-2", "fifteen-letters"] {
        assert_eq!(
            port(json!({ "port": name })),
            PortMatch::Named(name.to_owned())
        );
    }
}

#[test]
fn a_protocol_that_is_none_stays_text() {
    for (protocol, expected) in [
        (json!(null), "TCP"),
        (json!(""), "TCP"),
        (json!("tcp"), "tcp"),
        (json!(6), "6"),
    ] {
        let found = ingress(json!({"ports": [{ "protocol": protocol }]})).ports;
        assert_eq!(found[0].protocol, expected);
    }
}

#[test]
fn a_selector_that_cannot_be_understood_selects_nothing_and_says_so() {
    for selector in [
        json!(7),
        json!(""),
        json!([]),
        json!({"matchLabels": 7}),
        json!({"matchlabels": {"app": "web"}}),
        json!({"matchExpressions": {}}),
        json!({"matchExpressions": [7]}),
        json!({"matchExpressions": [{"operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "app"}]}),
        json!({"matchExpressions": [{"key": null, "operator": "DoesNotExist"}]}),
        json!({"matchExpressions": [["app", "Exists", []]]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w*"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": []}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": "web"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["web"]}]}),
    ] {
        let found = policy(&json!({ "podSelector": selector })).pod_selector;
        assert!(found.unknown_operator().is_some(), "{selector}: {found:?}");
    }
    let whole = policy(&json!("odd")).pod_selector;
    assert!(whole.unknown_operator().is_some(), "{whole:?}");
}

#[test]
fn a_policy_type_that_is_none_stays_text() {
    let found = policy(&json!({"policyTypes": ["Ingress", 7, "Both"]}));
    assert_eq!(found.policy_types, ["Ingress", "7", "Both"]);
}
