//! The manifests of a cluster with policies, one document each.

use crate::node::manifest;

/// The own Node, another one and the namespace `default`, then `documents`.
pub fn cluster(documents: &[String]) -> String {
    [manifest(1), manifest(2), namespace()].concat() + &documents.concat()
}

/// The namespace `default`.
pub fn namespace() -> String {
    "---\napiVersion: v1\nkind: Namespace\n\
     metadata: {name: default, labels: {kubernetes.io/metadata.name: default}}\n"
        .to_owned()
}

/// A running pod of the namespace `default` on the own Node, with the label `app`.
pub fn pod(name: &str, host: u8) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\n\
         metadata: {{namespace: default, name: {name}, labels: {{app: {name}}}}}\n\
         spec: {{nodeName: n1, containers: [{{name: c}}]}}\n\
         status: {{phase: Running, podIP: 10.0.1.{host}, podIPs: [{{ip: 10.0.1.{host}}}]}}\n"
    )
}

/// A NetworkPolicy of the namespace `default`.
pub fn policy(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{namespace: default, name: {name}}}\nspec: {spec}\n"
    )
}

/// Every pod of the namespace is isolated for ingress.
pub fn default_deny() -> String {
    policy("deny", "{podSelector: {}, policyTypes: [Ingress]}")
}

/// Pods with this label let those with the other one in on a port.
pub fn allow(to: &str, from: &str, port: u16) -> String {
    let spec = format!(
        "{{podSelector: {{matchLabels: {{app: {to}}}}}, policyTypes: [Ingress], ingress: \
         [{{from: [{{podSelector: {{matchLabels: {{app: {from}}}}}}}], \
         ports: [{{protocol: TCP, port: {port}}}]}}]}}"
    );
    policy("allow", &spec)
}

/// A ClusterNetworkPolicy of the tier Admin that denies pods with this label what
/// pods of the namespace send.
pub fn admin_deny(to: &str) -> String {
    format!(
        "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
         metadata: {{name: admin}}\n\
         spec: {{tier: Admin, priority: 5, subject: {{pods: {{namespaceSelector: {{}}, \
         podSelector: {{matchLabels: {{app: {to}}}}}}}}}, ingress: [{{name: no, action: Deny, \
         from: [{{namespaces: {{}}}}]}}]}}\n"
    )
}
