//! Node manifests, and the file of them that the agents watch.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::LabError;
use crate::objects::Objects;

/// The fields of a Node manifest that the agent reads. All are public, so that a
/// test can give them any value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeManifest {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`, RFC 3339.
    pub created: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.podCIDRs`; the first is `spec.podCIDR` too.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`: type and address.
    pub addresses: Vec<(String, String)>,
    /// Whether it has a condition `Ready` that is `Unknown`, as that of a node that has gone.
    pub not_ready: bool,
}

impl NodeManifest {
    /// A node with one internal address and one pod CIDR.
    #[must_use]
    pub fn new(name: &str, address: Ipv4Addr, pod_cidr: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            created: Some("2026-01-01T00:00:00Z".to_owned()),
            labels: BTreeMap::new(),
            pod_cidrs: vec![pod_cidr.to_owned()],
            addresses: vec![("InternalIP".to_owned(), address.to_string())],
            not_ready: false,
        }
    }

    /// The manifest as a Kubernetes object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let addresses: Vec<Value> = self
            .addresses
            .iter()
            .map(|(kind, address)| json!({"type": kind, "address": address}))
            .collect();
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "uid": self.uid, "labels": self.labels },
            "spec": {},
            "status": { "addresses": addresses },
        });
        if let Some(created) = &self.created {
            node["metadata"]["creationTimestamp"] = json!(created);
        }
        if self.not_ready {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        }
        if let Some(first) = self.pod_cidrs.first() {
            node["spec"]["podCIDR"] = json!(first);
            node["spec"]["podCIDRs"] = json!(self.pod_cidrs);
        }
        node
    }
}

/// A file of Node manifests.
#[derive(Debug, Clone)]
pub struct NodesFile {
    path: PathBuf,
}

impl NodesFile {
    /// A node file at this path; nothing is written yet.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file atomically by a List of these nodes.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeManifest>,
    ) -> Result<(), LabError> {
        self.write_with(nodes, &Objects::default())
    }

    /// As [`NodesFile::write`], with other objects after the List.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write_with<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeManifest>,
        objects: &Objects,
    ) -> Result<(), LabError> {
        let items: Vec<Value> = nodes.into_iter().map(NodeManifest::to_json).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        self.write_text(&format!("{list:#}\n{}", objects.to_yaml()))
    }

    /// Replaces the file atomically by any text, also an empty folder in its place.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write_text(&self, text: &str) -> Result<(), LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = self.path.with_extension(format!("new{number}"));
        // It fails where there is a file, which stays.
        let _ = fs::remove_dir(&self.path);
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &self.path))
            .map_err(|e| LabError::file("write", &self.path, e))
    }
}
