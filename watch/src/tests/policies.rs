//! Examples of policies for the tests of all kinds.

use serde_json::{Value, json};

use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy};
use tweed_core::object::network_policy::{self, NetworkPolicy};
use tweed_core::object::selector::LabelSelector;

use super::kinds::{TestKind, VALUE, json_metadata, team};
use super::message::Message;

/// A selector of the label `team`, in the three forms.
fn team_selector(value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: team(value).into_iter().collect(),
        ..LabelSelector::default()
    }
}

fn json_selector(value: &str) -> Value {
    json!({"matchLabels": {"team": value}})
}

fn message_selector(value: &str) -> Message {
    Message::default().message(1, Message::default().text(1, "team").text(2, value))
}

impl TestKind for NetworkPolicy {
    const NAMESPACE: &'static str = "shop";

    fn object(name: &str, value: &str) -> Self {
        let block = network_policy::Peer::Block {
            cidr: value.to_owned(),
            except: vec!["192.0.2.9".to_owned()],
        };
        let pods = network_policy::Peer::Pods {
            namespace: None,
            pod: Some(team_selector(VALUE)),
        };
        let port = network_policy::Port {
            protocol: "UDP".to_owned(),
            port: network_policy::PortMatch::Range(53, 54),
        };
        Self {
            namespace: Self::NAMESPACE.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            pod_selector: team_selector(VALUE),
            policy_types: vec!["Ingress".to_owned()],
            ingress: vec![network_policy::Rule {
                peers: vec![block, pods],
                ports: vec![port],
            }],
            egress: Vec::new(),
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": {
                "podSelector": json_selector(VALUE),
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [
                        {"ipBlock": {"cidr": value, "except": ["192.0.2.9"]}},
                        {"podSelector": json_selector(VALUE)},
                    ],
                    "ports": [{"protocol": "UDP", "port": 53, "endPort": 54}],
                }],
            },
        })
    }

    fn message(metadata: Message) -> Message {
        let block = Message::default().text(1, VALUE).text(2, "192.0.2.9");
        let port = Message::default().number(1, 0).number(2, 53).text(3, "");
        let port = Message::default()
            .text(1, "UDP")
            .message(2, port)
            .number(3, 54);
        let rule = Message::default()
            .message(1, port)
            .message(2, Message::default().message(3, block))
            .message(2, Message::default().message(1, message_selector(VALUE)));
        let spec = Message::default()
            .message(1, message_selector(VALUE))
            .message(2, rule)
            .text(4, "Ingress");
        Message::default().message(1, metadata).message(2, spec)
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["spec"]["ingress"][0]["from"] = json!(7);
        let mut object = Self::object(name, VALUE);
        object.ingress[0].peers = vec![network_policy::Peer::Unknown("7".to_owned())];
        (json, object)
    }
}

/// The `spec` of a ClusterNetworkPolicy.
fn cluster_spec(value: &str) -> Value {
    json!({
        "tier": "Admin",
        "priority": 7,
        "subject": {"namespaces": {}},
        "egress": [{
            "action": "Deny",
            "to": [{"networks": [value]}, {"nodes": json_selector(VALUE)}],
            "protocols": [{"tcp": {"destinationPort": {"number": 25}}}],
        }],
    })
}

impl TestKind for ClusterNetworkPolicy {
    const NAMESPACE: &'static str = "";

    fn object(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            tier: "Admin".to_owned(),
            priority: 7,
            subject: cluster::Subject::Namespaces(LabelSelector::default()),
            ingress: Vec::new(),
            egress: vec![cluster::Rule {
                name: String::new(),
                action: "Deny".to_owned(),
                peers: vec![
                    cluster::Peer::Networks(vec![value.to_owned()]),
                    cluster::Peer::Nodes(team_selector(VALUE)),
                ],
                protocols: vec![cluster::Protocol::Ports {
                    protocol: "TCP".to_owned(),
                    port: network_policy::PortMatch::Range(25, 25),
                }],
            }],
        }
    }

    fn json(name: &str, version: &str, value: &str) -> Value {
        json!({
            "metadata": json_metadata::<Self>(name, version, VALUE),
            "spec": cluster_spec(value),
            "status": {"conditions": []},
        })
    }

    fn message(metadata: Message) -> Message {
        let spec = cluster_spec(VALUE).to_string();
        Message::default().message(1, metadata).text(10_000, &spec)
    }

    fn odd(name: &str, version: &str) -> (Value, Self) {
        let mut json = Self::json(name, version, VALUE);
        json["spec"]["egress"][0]["to"] = json!([{"planets": {}}]);
        let mut object = Self::object(name, VALUE);
        object.egress[0].peers = vec![cluster::Peer::Unknown(r#"{"planets":{}}"#.to_owned())];
        (json, object)
    }
}
