//! Objects other than Nodes in the file that the agents read: Namespaces, Pods, policies.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

/// Manifests by a key of the caller's choice, as they are written into the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    documents: BTreeMap<String, String>,
}

impl Objects {
    /// Adds a manifest, YAML or JSON, or replaces the one of this key.
    pub fn set(&mut self, key: &str, manifest: impl Into<String>) {
        self.documents.insert(key.to_owned(), manifest.into());
    }

    /// Removes a manifest; nothing happens if there is none of this key.
    pub fn remove(&mut self, key: &str) {
        self.documents.remove(key);
    }

    /// Whether there is a manifest of this key.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.documents.contains_key(key)
    }

    /// The manifests as documents of a YAML stream, each after its separator.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let documents = self.documents.values();
        documents.map(|text| format!("---\n{text}\n")).collect()
    }
}

/// A Namespace with these labels, and the one that Kubernetes gives it.
#[must_use]
pub fn namespace_manifest(name: &str, labels: &BTreeMap<String, String>) -> String {
    let mut labels = labels.clone();
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": labels },
    })
    .to_string()
}

/// The fields of a Pod that the agent reads. All are public, so that a test can give
/// them any value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodManifest {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeName`.
    pub node: String,
    /// Named ports of its container: name, protocol, number.
    pub ports: Vec<(String, String, u16)>,
    /// `status.podIPs`; none before the ADD is known to the API.
    pub addresses: Vec<IpAddr>,
    /// `status.phase`; empty means `Pending` without addresses, and `Running` with some.
    pub phase: String,
}

impl PodManifest {
    /// The manifest as a Kubernetes object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            namespace,
            name,
            labels,
            node,
            ..
        } = self;
        let phase = match (self.phase.as_str(), self.addresses.as_slice()) {
            ("", []) => "Pending",
            ("", _) => "Running",
            (phase, _) => phase,
        };
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|(name, protocol, port)| {
                json!({"name": name, "protocol": protocol, "containerPort": port})
            })
            .collect();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name, "labels": labels,
                          "uid": format!("uid-of-{namespace}-{name}") },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "ports": ports }] },
            "status": { "phase": phase },
        });
        if let Some(first) = self.addresses.first() {
            let all = self.addresses.iter().map(|ip| json!({ "ip": ip }));
            pod["status"]["podIP"] = json!(first);
            pod["status"]["podIPs"] = all.collect();
        }
        pod
    }
}

/// Labels of `key=value` words.
#[must_use]
pub fn labels(words: &str) -> BTreeMap<String, String> {
    let pairs = words.split_whitespace().filter_map(|w| w.split_once('='));
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}
