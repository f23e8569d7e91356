use serde_json::json;

use super::*;

fn policy(spec: &Value) -> ClusterNetworkPolicy {
    let value = json!({"metadata": {"name": "a", "uid": "7a"}, "spec": spec});
    ClusterNetworkPolicy::from_fields(serde_json::from_value(value).unwrap()).unwrap()
}

fn rule_of(direction: &str, rule: &Value) -> Rule {
    let policy = policy(&json!({ direction: [rule] }));
    let mut rules = [policy.ingress, policy.egress].concat();
    assert_eq!(rules.len(), 1);
    rules.remove(0)
}

fn peer_to(peer: &Value) -> Peer {
    rule_of("egress", &json!({"action": "Deny", "to": [peer]})).peers[0].clone()
}

fn protocol_of(protocol: &Value) -> Protocol {
    let rule = json!({"action": "Deny", "from": [{"namespaces": {}}], "protocols": [protocol]});
    rule_of("ingress", &rule).protocols[0].clone()
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
        "tier": "Baseline",
        "priority": 1000,
        "subject": {"pods": {
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {"app": "db"}},
        }},
        "ingress": [{
            "name": "web",
            "action": "Accept",
            "from": [
                {"namespaces": {"matchLabels": {"app": "web"}}},
                {"pods": {"namespaceSelector": {}, "podSelector": {}}},
            ],
            "protocols": [
                {"tcp": {"destinationPort": {"number": 80}}},
                {"udp": {"destinationPort": {"range": {"start": 1, "end": 65535}}}},
                {"sctp": {"destinationPort": {"number": 9}}},
                {"destinationNamedPort": "metrics"},
            ],
        }],
        "egress": [{
            "action": "Pass",
            "to": [
                {"nodes": {}},
                {"networks": ["10.0.0.0/8", "fd00::/8"]},
                {"domainNames": ["*.example.com"]},
            ],
        }],
    }));
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let ports = |protocol: &str, port| Protocol::Ports {
        protocol: protocol.to_owned(),
        port,
    };
    let expected = ClusterNetworkPolicy {
        name: "a".to_owned(),
        uid: "7a".to_owned(),
        tier: "Baseline".to_owned(),
        priority: 1000,
        subject: Subject::Pods {
            namespace: LabelSelector::default(),
            pod: app("db"),
        },
        ingress: vec![Rule {
            name: "web".to_owned(),
            action: "Accept".to_owned(),
            peers: vec![
                Peer::Namespaces(app("web")),
                Peer::Pods {
                    namespace: LabelSelector::default(),
                    pod: LabelSelector::default(),
                },
            ],
            protocols: vec![
                ports("TCP", PortMatch::Range(80, 80)),
                ports("UDP", PortMatch::Range(1, 65535)),
                ports("SCTP", PortMatch::Range(9, 9)),
                Protocol::NamedPort("metrics".to_owned()),
            ],
        }],
        egress: vec![Rule {
            name: String::new(),
            action: "Pass".to_owned(),
            peers: vec![
                Peer::Nodes(LabelSelector::default()),
                Peer::Networks(texts(&["10.0.0.0/8", "fd00::/8"])),
                Peer::DomainNames(texts(&["*.example.com"])),
            ],
            protocols: Vec::new(),
        }],
    };
    assert_eq!(found, expected);
}

#[test]
fn a_policy_that_is_as_good_as_empty_has_an_unknown_subject() {
    for spec in [json!(null), json!({}), json!(7), json!("odd"), json!([])] {
        let found = policy(&spec);
        assert_eq!((found.tier.as_str(), found.priority), ("", NO_PRIORITY));
        assert!(matches!(found.subject, Subject::Unknown(_)), "{spec}");
        assert!(found.ingress.is_empty() && found.egress.is_empty());
    }
}

#[test]
fn a_subject_that_cannot_be_understood_says_so() {
    for subject in [
        json!(null),
        json!({}),
        json!("pods"),
        json!({"serviceAccounts": {}}),
        json!({"namespaces": {}, "serviceAccounts": {}}),
        json!({"namespaces": {}, "pods": {"namespaceSelector": {}, "podSelector": {}}}),
        json!({"pods": {"namespaceSelector": {}}}),
        json!({"pods": {"namespaceSelector": {}, "podSelector": {}, "nodeSelector": {}}}),
        json!({"pods": 7}),
    ] {
        let found = policy(&json!({ "subject": subject })).subject;
        assert_eq!(found, Subject::Unknown(subject.to_string()));
    }
    let Subject::Namespaces(odd) = policy(&json!({"subject": {"namespaces": 7}})).subject else {
        panic!("namespaces are known")
    };
    assert!(odd.unknown_operator().is_some());
}

#[test]
fn pods_without_a_selector_of_namespaces_are_those_of_all_namespaces() {
    let selector = json!({"matchLabels": {"app": "db"}});
    for pods in [
        json!({"podSelector": selector}),
        json!({"podSelector": selector, "namespaceSelector": null}),
        json!({"podSelector": selector, "namespaceSelector": {}}),
    ] {
        let spec = json!({"subject": {"pods": pods}});
        let Subject::Pods { namespace, pod } = policy(&spec).subject else {
            panic!("{pods}");
        };
        assert_eq!(namespace, LabelSelector::default());
        assert_eq!(pod, super::selector(selector.clone()));
        let Peer::Pods { namespace, pod } = peer_to(&json!({"pods": pods})) else {
            panic!("{pods}");
        };
        assert_eq!(namespace, LabelSelector::default());
        assert_eq!(pod, super::selector(selector.clone()));
    }
}

#[test]
fn a_peer_that_cannot_be_understood_says_so() {
    for peer in [
        json!(null),
        json!({}),
        json!("10.0.0.0/8"),
        json!({"services": {}}),
        json!({"namespaces": {}, "services": {}}),
        json!({"namespaces": {}, "nodes": {}}),
        json!({"networks": "10.0.0.0/8"}),
        json!({"networks": []}),
        json!({"networks": null}),
        json!({"domainNames": {}}),
        json!({"pods": {"namespaceSelector": {}}}),
    ] {
        assert_eq!(peer_to(&peer), Peer::Unknown(peer.to_string()));
    }
    // A network that is none stays text.
    let odd = peer_to(&json!({"networks": [7]}));
    assert_eq!(odd, Peer::Networks(vec!["7".to_owned()]));
    // What only egress has.
    for peer in [json!({"nodes": {}}), json!({"networks": ["10.0.0.0/8"]})] {
        let rule = rule_of("ingress", &json!({"action": "Accept", "from": [peer]}));
        assert_eq!(rule.peers, [Peer::Unknown(peer.to_string())]);
    }
}

#[test]
fn a_rule_with_an_unknown_field_or_without_peers_has_an_unknown_peer_alone() {
    for rule in [
        json!(null),
        json!(7),
        json!({}),
        json!({"action": "Accept"}),
        json!({"action": "Accept", "from": []}),
        json!({"action": "Accept", "from": null}),
        json!({"action": "Accept", "from": [{"namespaces": {}}], "schedule": "night"}),
        json!({"action": "Accept", "to": [{"namespaces": {}}]}),
    ] {
        let found = rule_of("ingress", &rule);
        assert_eq!(found.peers, [Peer::Unknown(rule.to_string())]);
    }
    // What it does and for what is still said: a Deny counts for everything.
    let rule = json!({
        "action": "Deny",
        "name": "n",
        "from": [{"namespaces": {}}],
        "schedule": "night",
    });
    let found = rule_of("ingress", &rule);
    assert_eq!((found.action.as_str(), found.name.as_str()), ("Deny", "n"));
}

#[test]
fn a_protocol_that_cannot_be_understood_says_so() {
    for protocol in [
        json!(null),
        json!({}),
        json!("TCP"),
        json!({"icmp": {}}),
        json!({"tcp": null}),
        json!({"tcp": {}}),
        json!({"tcp": {"destinationPort": null}}),
        json!({"tcp": {"destinationPort": 80}}),
        json!({"tcp": {"destinationPort": {}}}),
        json!({"tcp": {"destinationPort": {"number": "80"}}}),
        json!({"tcp": {"destinationPort": {"number": 80, "range": {"start": 1, "end": 2}}}}),
        json!({"tcp": {"destinationPort": {"range": {"start": 1}}}}),
        json!({"tcp": {"destinationPort": {"range": {"start": 1, "end": 2, "step": 2}}}}),
        json!({"tcp": {"destinationPort": {"number": 80}, "sourcePort": {"number": 1}}}),
        json!({"tcp": {"destinationPort": {"number": 80}}, "udp": {}}),
        json!({"destinationNamedPort": ""}),
        json!({"destinationNamedPort": 80}),
    ] {
        let found = protocol_of(&protocol);
        assert_eq!(found, Protocol::Unknown(protocol.to_string()));
    }
    for port in [
        json!({"number": 0}),
        json!({"number": 65536}),
        json!({"range": {"start": 2, "end": 1}}),
    ] {
        let found = protocol_of(&json!({"udp": {"destinationPort": port}}));
        let invalid = |port: &PortMatch| matches!(port, PortMatch::Invalid(_));
        assert!(
            matches!(&found, Protocol::Ports { port, .. } if invalid(port)),
            "{found:?}"
        );
    }
    let all = rule_of("egress", &json!({"to": [{"nodes": {}}], "protocols": 7}));
    assert_eq!(all.protocols, [Protocol::Unknown("7".to_owned())]);
}
