//! The fields of Kubernetes' objects that are read. All may be missing.

use serde::Deserialize;

/// A page of a list.
#[derive(Debug, Deserialize)]
pub struct List<T> {
    /// Where the next page begins.
    #[serde(default)]
    pub metadata: ListMetadata,
    /// The objects.
    pub items: Vec<T>,
}

/// Metadata of a page.
#[derive(Debug, Default, Deserialize)]
pub struct ListMetadata {
    /// A token for the next page; empty or none on the last one.
    #[serde(rename = "continue")]
    pub continue_from: Option<String>,
}

/// Metadata of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// When it was made.
    pub creation_timestamp: String,
    /// When it was deleted, if it goes away.
    pub deletion_timestamp: Option<String>,
}

/// A Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// Metadata.
    pub metadata: Metadata,
    /// Specification.
    pub spec: NodeSpec,
    /// Status.
    pub status: NodeStatus,
}

/// What a Node should be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The ranges of its pods.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

/// What a Node is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Which one: `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for people.
    pub message: String,
}

impl NodeObject {
    /// Why the kubelet does not count as ready; none if it does.
    pub fn unready(&self) -> Option<String> {
        let mut conditions = self.status.conditions.iter();
        match conditions.find(|one| one.kind == "Ready") {
            Some(one) if one.status == "True" => None,
            Some(one) => Some(format!("Ready is {}: {}", one.status, one.message)),
            None => Some("it has no condition Ready".to_owned()),
        }
    }
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    /// Metadata.
    pub metadata: Metadata,
    /// Specification.
    pub spec: PodSpec,
    /// Status.
    pub status: PodStatus,
}

/// What a pod should be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Its Node.
    pub node_name: String,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// Words that replace the image's entry point.
    pub command: Vec<String>,
    /// Words after them.
    pub args: Vec<String>,
    /// Variables.
    pub env: Vec<Variable>,
}

/// A variable of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Value, if the pod itself has it.
    pub value: String,
}

/// What a pod is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Running`, `Pending`, `Failed`.
    pub phase: String,
    /// Why it is so, if it failed.
    pub message: String,
    /// Its containers.
    pub container_statuses: Vec<ContainerStatus>,
}

/// What a container is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Whether its readiness probe succeeds.
    pub ready: bool,
    /// What it does: one of them.
    pub state: ContainerState,
}

/// What a container does: it runs if it neither waits nor has ended.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    pub running: Option<serde_json::Value>,
    /// It waits to be started.
    pub waiting: Option<Reason>,
    /// It has ended.
    pub terminated: Option<Reason>,
}

/// Why a container does not run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Reason {
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// An Event.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventObject {
    /// What it is about.
    pub involved_object: Reference,
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// How often.
    pub count: Option<u64>,
}

/// Names an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}
