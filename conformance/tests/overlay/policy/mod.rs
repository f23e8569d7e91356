//! NetworkPolicy and ClusterNetworkPolicy over several nodes, by real packets. Objects
//! come from the node file; nothing here knows how the agent brings them into the kernel.

pub mod active;
mod scene;
pub mod traffic;

mod first_packet;
mod flows;
mod icmp;
mod many;
mod nodes;
mod reused;
mod sctp;
mod semantics;
mod services;
mod unsupported;

/// A NetworkPolicy with this `spec`, in YAML's flow style.
pub fn policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{namespace: {namespace}, name: {name}}}\nspec: {spec}\n"
    )
}

/// A ClusterNetworkPolicy with this `spec`.
fn cluster_policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
         metadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

/// A `spec` that isolates every pod of its namespace in both directions.
pub const DENY_ALL: &str = "{podSelector: {}, policyTypes: [Ingress, Egress]}";
