//! The objects of a case as manifests, which is what the judge reads.

use serde_json::{Map, Value, json};

use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::node::Node;
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::{LabelSelector, Labels, Operator};

use super::case::{Case, Packet};

/// All objects of a case.
pub fn cluster(case: &Case) -> Value {
    let pods = case.pods.iter().map(pod);
    let policies = case.policies.iter().map(network_policy);
    let cluster_policies = case.cluster_policies.iter().map(cluster_network_policy);
    json!({
        "namespaces": case.namespaces.iter().map(namespace).collect::<Vec<_>>(),
        "nodes": case.nodes.iter().map(node).collect::<Vec<_>>(),
        "pods": pods.collect::<Vec<_>>(),
        "networkPolicies": policies.collect::<Vec<_>>(),
        "clusterNetworkPolicies": cluster_policies.collect::<Vec<_>>(),
    })
}

fn namespace(namespace: &Namespace) -> Value {
    json!({ "metadata": { "name": namespace.name, "labels": namespace.labels } })
}

fn node(node: &Node) -> Value {
    let listed = node.addresses.iter();
    let addresses = listed.map(|one| json!({ "type": one.kind, "address": one.address }));
    json!({
        "metadata": { "name": node.name, "labels": node.labels },
        "status": { "addresses": addresses.collect::<Vec<_>>() },
    })
}

fn pod(pod: &Pod) -> Value {
    // One container for each port: two of one container cannot have the same name.
    let containers = pod.ports.iter().enumerate().map(|(index, port)| {
        let port = json!({
            "name": port.name, "protocol": port.protocol, "containerPort": port.port,
        });
        json!({ "name": format!("container-{index}"), "ports": [port] })
    });
    let addresses = pod.addresses.iter().map(|address| json!({ "ip": address }));
    json!({
        "metadata": { "namespace": pod.namespace, "name": pod.name, "labels": pod.labels },
        "spec": {
            "nodeName": pod.node,
            "hostNetwork": pod.host_network,
            "containers": containers.collect::<Vec<_>>(),
        },
        "status": {
            "phase": if pod.finished { "Succeeded" } else { "Running" },
            "podIP": pod.addresses.first(),
            "podIPs": addresses.collect::<Vec<_>>(),
        },
    })
}

pub fn packet(packet: &Packet) -> Value {
    json!({
        "source": packet.source,
        "destination": packet.destination,
        "protocol": packet.protocol,
        "port": packet.port,
    })
}

fn network_policy(policy: &NetworkPolicy) -> Value {
    let rules = |rules: &[Rule], peers: &str| -> Vec<Value> {
        let value = |rule| network_policy_rule(rule, peers);
        rules.iter().map(value).collect()
    };
    json!({
        "metadata": { "namespace": policy.namespace, "name": policy.name },
        "spec": {
            "podSelector": selector(&policy.pod_selector),
            "policyTypes": policy.policy_types,
            "ingress": rules(&policy.ingress, "from"),
            "egress": rules(&policy.egress, "to"),
        },
    })
}

fn network_policy_rule(rule: &Rule, peers: &str) -> Value {
    json!({
        peers: rule.peers.iter().map(peer).collect::<Vec<_>>(),
        "ports": rule.ports.iter().map(port).collect::<Vec<_>>(),
    })
}

fn peer(peer: &Peer) -> Value {
    match peer {
        Peer::Pods { namespace, pod } => {
            let selectors = [("namespaceSelector", namespace), ("podSelector", pod)];
            let present = selectors
                .into_iter()
                .filter_map(|(name, one)| Some((name, one.as_ref()?)));
            let object = present.map(|(name, one)| (name.to_owned(), selector(one)));
            Value::Object(object.collect::<Map<_, _>>())
        }
        Peer::Block { cidr, except } => json!({ "ipBlock": { "cidr": cidr, "except": except } }),
        Peer::Unknown(text) => unreachable!("no case has the peer {text}"),
    }
}

fn port(port: &Port) -> Value {
    let protocol = &port.protocol;
    match &port.port {
        PortMatch::All => json!({ "protocol": protocol }),
        PortMatch::Range(first, last) if first == last => {
            json!({ "protocol": protocol, "port": first })
        }
        PortMatch::Range(first, last) => {
            json!({ "protocol": protocol, "port": first, "endPort": last })
        }
        PortMatch::Named(name) => json!({ "protocol": protocol, "port": name }),
        PortMatch::Invalid(text) => unreachable!("no case has the port {text}"),
    }
}

fn cluster_network_policy(policy: &ClusterNetworkPolicy) -> Value {
    let rules = |rules: &[cluster::Rule], peers: &str| -> Vec<Value> {
        let value = |rule| cluster_rule(rule, peers);
        rules.iter().map(value).collect()
    };
    let subject = match &policy.subject {
        Subject::Namespaces(namespaces) => json!({ "namespaces": selector(namespaces) }),
        Subject::Pods { namespace, pod } => json!({ "pods": pods(namespace, pod) }),
        Subject::Unknown(text) => unreachable!("no case has the subject {text}"),
    };
    json!({
        "metadata": { "name": policy.name },
        "spec": {
            "tier": policy.tier,
            "priority": policy.priority,
            "subject": subject,
            "ingress": rules(&policy.ingress, "from"),
            "egress": rules(&policy.egress, "to"),
        },
    })
}

fn cluster_rule(rule: &cluster::Rule, peers: &str) -> Value {
    json!({
        "action": rule.action,
        peers: rule.peers.iter().map(cluster_peer).collect::<Vec<_>>(),
        "protocols": rule.protocols.iter().map(protocol).collect::<Vec<_>>(),
    })
}

fn cluster_peer(peer: &cluster::Peer) -> Value {
    match peer {
        cluster::Peer::Namespaces(namespaces) => json!({ "namespaces": selector(namespaces) }),
        cluster::Peer::Pods { namespace, pod } => json!({ "pods": pods(namespace, pod) }),
        cluster::Peer::Nodes(nodes) => json!({ "nodes": selector(nodes) }),
        cluster::Peer::Networks(networks) => json!({ "networks": networks }),
        cluster::Peer::DomainNames(names) => json!({ "domainNames": names }),
        cluster::Peer::Unknown(text) => unreachable!("no case has the peer {text}"),
    }
}

fn protocol(protocol: &cluster::Protocol) -> Value {
    match protocol {
        cluster::Protocol::Ports { protocol, port } => {
            let ports = match port {
                PortMatch::All => json!({}),
                PortMatch::Range(first, last) if first == last => {
                    json!({ "destinationPort": { "number": first } })
                }
                PortMatch::Range(first, last) => {
                    json!({ "destinationPort": { "range": { "start": first, "end": last } } })
                }
                other => unreachable!("no case has the port {other:?}"),
            };
            json!({ protocol.to_lowercase(): ports })
        }
        cluster::Protocol::NamedPort(name) => json!({ "destinationNamedPort": name }),
        cluster::Protocol::Unknown(text) => unreachable!("no case has the protocol {text}"),
    }
}

fn pods(namespace: &LabelSelector, pod: &LabelSelector) -> Value {
    json!({ "namespaceSelector": selector(namespace), "podSelector": selector(pod) })
}

fn selector(selector: &LabelSelector) -> Value {
    let expressions = selector.match_expressions.iter().map(|requirement| {
        let operator = match &requirement.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::Unknown(text) => text,
        };
        json!({ "key": requirement.key, "operator": operator, "values": requirement.values })
    });
    json!({
        "matchLabels": selector.match_labels.iter().cloned().collect::<Labels>(),
        "matchExpressions": expressions.collect::<Vec<_>>(),
    })
}
