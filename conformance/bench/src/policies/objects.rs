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

/// The namespace.
pub fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE,
            "labels": { "kubernetes.io/metadata.name": NAMESPACE } } })
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

/// Pod `number` of the other nodes.
pub fn peer(number: u32) -> Value {
    // 10.100.0.0 and upwards: no node of the lab has these.
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 100, 0, 0)) + number);
    let workload = format!("w{}", number % WORKLOADS);
    let node = format!("other{}", number / 100);
    pod(
        &format!("peer{number}"),
        &node,
        &workload,
        Some(address.into()),
    )
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

fn named(name: &str, app: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}") },
        "spec": { "podSelector": { "matchLabels": { "app": app } },
                  "policyTypes": ["Ingress"], "ingress": rules },
    })
}
