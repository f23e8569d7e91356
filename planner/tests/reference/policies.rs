//! Random policies.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::selector::{LabelSelector, Operator, Requirement};

use super::case::{LABEL_KEYS, LABEL_VALUES, NAMESPACES, PORT_NAMES, PORTS, PROTOCOLS, labels};

/// Networks around the addresses of a case: whole families, pod CIDRs, parts of them,
/// Nodes, and the outside.
const NETWORKS: [&str; 14] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.1.0/24",
    "10.0.1.8/29",
    "10.0.2.12/32",
    "192.0.2.0/24",
    "192.0.2.2/32",
    "203.0.113.0/24",
    "203.0.113.64/26",
    "::/0",
    "fd00::/16",
    "fd00:0:0:1::/64",
    "2001:db8::5/128",
];

/// A NetworkPolicy without a name.
pub fn network_policy() -> impl Strategy<Value = NetworkPolicy> {
    let types = subsequence(vec!["Ingress", "Egress"], 0..=2);
    let rules = || vec(rule(), 0..3);
    (select(&NAMESPACES), selector(), types, rules(), rules()).prop_map(
        |(namespace, pod_selector, types, ingress, egress)| NetworkPolicy {
            namespace: namespace.to_owned(),
            pod_selector,
            policy_types: types.into_iter().map(str::to_owned).collect(),
            ingress,
            egress,
            ..NetworkPolicy::default()
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    (vec(peer(), 0..3), vec(port(), 0..3)).prop_map(|(peers, ports)| Rule { peers, ports })
}

fn peer() -> impl Strategy<Value = Peer> {
    let selectors = (option::of(selector()), option::of(selector()));
    let pods = selectors.prop_filter_map("a peer has a selector", |(namespace, pod)| {
        (namespace.is_some() || pod.is_some()).then_some(Peer::Pods { namespace, pod })
    });
    let networks = (select(&NETWORKS), subsequence(NETWORKS.to_vec(), 0..4));
    let block = networks.prop_map(|(cidr, except)| Peer::Block {
        cidr: cidr.to_owned(),
        except: except
            .into_iter()
            .filter(|one| is_within(one, cidr))
            .map(str::to_owned)
            .collect(),
    });
    prop_oneof![3 => pods, 2 => block]
}

/// The API server refuses an exception that is not strictly within its network.
fn is_within(inner: &str, outer: &str) -> bool {
    let parse = |text: &str| text.parse::<ipnetwork::IpNetwork>().ok();
    let (Some(inner), Some(outer)) = (parse(inner), parse(outer)) else {
        return false;
    };
    inner.is_ipv4() == outer.is_ipv4()
        && inner.prefix() > outer.prefix()
        && outer.contains(inner.network())
}

fn port() -> impl Strategy<Value = Port> {
    (select(&PROTOCOLS), port_match(true)).prop_map(|(protocol, port)| Port {
        protocol: protocol.to_owned(),
        port,
    })
}

fn port_match(may_be_named: bool) -> BoxedStrategy<PortMatch> {
    let one = select(&PORTS).prop_map(|port| PortMatch::Range(port, port));
    let range = (select(&PORTS), select(&PORTS))
        .prop_map(|(one, other)| PortMatch::Range(one.min(other), one.max(other)));
    if !may_be_named {
        return prop_oneof![1 => Just(PortMatch::All), 3 => one, 2 => range].boxed();
    }
    let named = select(&PORT_NAMES).prop_map(|name| PortMatch::Named(name.to_owned()));
    prop_oneof![1 => Just(PortMatch::All), 3 => one, 2 => range, 2 => named].boxed()
}

/// A ClusterNetworkPolicy without a name.
pub fn cluster_network_policy() -> impl Strategy<Value = ClusterNetworkPolicy> {
    let subject = prop_oneof![
        selector().prop_map(Subject::Namespaces),
        (selector(), selector()).prop_map(|(namespace, pod)| Subject::Pods { namespace, pod }),
    ];
    let rules = |egress| vec(cluster_rule(egress), 0..4);
    let tier = select(vec!["Admin", "Baseline"]);
    (tier, 0..3_i64, subject, rules(false), rules(true)).prop_map(
        |(tier, priority, subject, ingress, egress)| ClusterNetworkPolicy {
            tier: tier.to_owned(),
            priority,
            subject,
            ingress,
            egress,
            ..ClusterNetworkPolicy::default()
        },
    )
}

fn cluster_rule(egress: bool) -> impl Strategy<Value = cluster::Rule> {
    let action = select(vec!["Accept", "Deny", "Pass"]);
    let peers = vec(cluster_peer(egress), 1..3);
    (action, peers, vec(protocol(), 0..3)).prop_map(|(action, peers, protocols)| cluster::Rule {
        action: action.to_owned(),
        peers,
        protocols,
        ..cluster::Rule::default()
    })
}

fn cluster_peer(egress: bool) -> BoxedStrategy<cluster::Peer> {
    let namespaces = selector().prop_map(cluster::Peer::Namespaces);
    let pods = (selector(), selector())
        .prop_map(|(namespace, pod)| cluster::Peer::Pods { namespace, pod });
    if !egress {
        return prop_oneof![namespaces, pods].boxed();
    }
    let nodes = selector().prop_map(cluster::Peer::Nodes);
    let networks = subsequence(NETWORKS.to_vec(), 1..4).prop_map(|networks| {
        cluster::Peer::Networks(networks.into_iter().map(str::to_owned).collect())
    });
    prop_oneof![2 => namespaces, 2 => pods, 1 => nodes, 2 => networks].boxed()
}

fn protocol() -> impl Strategy<Value = cluster::Protocol> {
    let numbered = (select(&PROTOCOLS), port_match(false));
    let ports = numbered.prop_map(|(protocol, port)| cluster::Protocol::Ports {
        protocol: protocol.to_owned(),
        port,
    });
    let names = select(&PORT_NAMES);
    let named = names.prop_map(|name| cluster::Protocol::NamedPort(name.to_owned()));
    prop_oneof![3 => ports, 1 => named]
}

/// Selectors that select something in most cases: half of them are empty or have a single
/// condition.
fn selector() -> impl Strategy<Value = LabelSelector> {
    let name = select(&NAMESPACES).prop_map(|name| LabelSelector {
        match_labels: [("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into(),
        ..LabelSelector::default()
    });
    let conditions = (labels(), vec(requirement(), 0..2));
    let matching = conditions.prop_map(|(labels, match_expressions)| LabelSelector {
        match_labels: labels.into_iter().collect(),
        match_expressions,
    });
    let expression = requirement().prop_map(|requirement| LabelSelector {
        match_expressions: vec![requirement],
        ..LabelSelector::default()
    });
    prop_oneof![2 => Just(LabelSelector::default()), 2 => expression, 2 => matching, 1 => name]
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let values = subsequence(LABEL_VALUES.to_vec(), 1..=LABEL_VALUES.len());
    let listed = (select(vec![Operator::In, Operator::NotIn]), values);
    let existing = select(vec![Operator::Exists, Operator::DoesNotExist]);
    let condition = prop_oneof![listed, existing.prop_map(|operator| (operator, Vec::new()))];
    (select(&LABEL_KEYS), condition).prop_map(|(key, (operator, values))| Requirement {
        key: key.to_owned(),
        operator,
        values: values.into_iter().map(str::to_owned).collect(),
    })
}
