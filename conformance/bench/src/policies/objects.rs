//! The cluster that is described to the agent: pods of other nodes in workloads, and
//! policies that let some of these workloads in.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

/// The namespace of the pods and policies.
pub const NAMESPACE: &str = "bench";

/// Number of workloads that the peers belong to at most.
const WORKLOADS: u32 = 1000;

/// The collections, as they end a path.
pub const NAMESPACES: &str = "namespaces";
pub const PODS: &str = "pods";
pub const POLICIES: &str = "networkpolicies";

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name,
            "labels": { "kubernetes.io/metadata.name": name } } })
}

/// A pod with this label `app`.
pub fn pod(name: &str, node: &str, app: &str, address: Option<IpAddr>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}"),
                      "labels": { "app": app, "role": "bench" } },
        "spec": { "nodeName": node, "containers": [{ "name": "main" }] },
        "status": { "phase": "Running" },
    });
    if let Some(address) = address {
        pod["status"]["podIP"] = json!(address);
        pod["status"]["podIPs"] = json!([{ "ip": address }]);
    }
    pod
}

/// Number of pods on each of the other nodes.
const ON_A_NODE: u32 = 100;

/// The Nodes of so many pods of [`peer`]: an address counts as a pod's only in the range of
/// its Node.
pub fn others(pods: u32) -> impl Iterator<Item = Value> {
    (0..pods.div_ceil(ON_A_NODE)).map(|number| {
        let cidr = format!("10.100.{number}.0/24");
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": format!("other{number}"), "uid": format!("uid-{number}") },
            "spec": { "podCIDR": cidr, "podCIDRs": [cidr] },
            "status": { "addresses": [{ "type": "InternalIP",
                                        "address": format!("192.0.2.{}", 100 + number) }] },
        })
    })
}

/// Pod `number` of the other nodes.
pub fn peer(number: u32) -> Value {
    let (node, on_it) = (number / ON_A_NODE, number % ON_A_NODE);
    let address = Ipv4Addr::new(10, 100, node as u8, 1 + on_it as u8);
    let (name, app) = (format!("peer{number}"), format!("w{}", number % WORKLOADS));
    pod(&name, &format!("other{node}"), &app, Some(address.into()))
}

/// Policy `number`: one of the local workloads lets three workloads in, each on its own
/// port, as services do.
pub fn policy(number: u32, locals: usize) -> Value {
    let locals = u32::try_from(locals).unwrap_or(1).max(1);
    let from = |step: u32| {
        let workload = format!("w{}", (number * 7 + step) % WORKLOADS);
        json!({
            "from": [{ "podSelector": { "matchLabels": { "app": workload } } }],
            "ports": [{ "protocol": "TCP", "port": 8000 + (number + step) % 50 }],
        })
    };
    let rules: Vec<Value> = (0..3).map(from).collect();
    named(
        &format!("policy{number}"),
        &format!("local{}", number % locals),
        &rules,
    )
}

/// The server lets this workload in on one UDP port.
pub fn allow(name: &str, app: &str, port: u16) -> Value {
    let rule = json!({
        "from": [{ "podSelector": { "matchLabels": { "app": app } } }],
        "ports": [{ "protocol": "UDP", "port": port }],
    });
    named(name, "server", &[rule])
}

/// Number of labels by whose values the pods of a tenant differ.
const BITS: usize = 12;

/// Pod `number` of a tenant, on another node.
pub fn bits(tenant: &str, number: u32) -> Value {
    let mut pod = peer(number);
    pod["metadata"]["namespace"] = tenant.into();
    // Any half of them has any label.
    let bits = number.wrapping_mul(2_654_435_761) >> 8;
    for bit in 0..BITS {
        pod["metadata"]["labels"][format!("b{bit}")] = (bits >> bit & 1).to_string().into();
    }
    pod
}

/// Policy `number` of a tenant, one of its states: each rule lets another half of its pods in,
/// on a port of its own that has no other beside it, as far as there are as many.
pub fn by_bits(tenant: &str, number: usize, rules: usize, state: usize) -> Value {
    let rule = |rule: usize| {
        let at = number * rules + rule;
        let (label, value) = (format!("b{}", at % BITS), (at / BITS + state) % 2);
        json!({
            "from": [{ "podSelector": { "matchLabels": { label: value.to_string() } } }],
            "ports": [{ "protocol": "TCP", "port": 1 + 2 * at % 65_535 }],
        })
    };
    let rules: Vec<Value> = (0..rules).map(rule).collect();
    let mut policy = named(&format!("bits{number}"), "tenant", &rules);
    policy["metadata"]["namespace"] = tenant.into();
    policy
}

fn named(name: &str, app: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}") },
        "spec": { "podSelector": { "matchLabels": { "app": app } },
                  "policyTypes": ["Ingress"], "ingress": rules },
    })
}
