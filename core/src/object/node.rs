//! A Node as its source describes it: not yet validated.

use serde::{Deserialize, Serialize};

use super::node_labels::NodeLabels;

/// A Node, with only the fields that tweed uses. Fields that may hold wrong
/// text stay text: the planner refuses a bad value and names its Node, and no
/// other Node is affected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty if the source gives none.
    pub uid: String,
    /// `metadata.creationTimestamp` in seconds since 1970. `None` counts as the
    /// oldest.
    pub created: Option<i64>,
    /// `spec.podCIDRs`, or `spec.podCIDR` alone.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`, in their order, without names: entries of kinds besides
    /// `InternalIP` and `ExternalIP` that are no addresses.
    pub addresses: Vec<NodeAddress>,
    /// `metadata.labels`, for policies that select Nodes.
    #[serde(default, skip_serializing_if = "NodeLabels::is_empty")]
    pub labels: NodeLabels,
    /// Whether it is about to go: it has a `metadata.deletionTimestamp` or the taint
    /// [`TO_BE_DELETED`]. Load balancers then send it no new connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Whether it has a condition `Ready` that is not `True`: its kubelet has gone, or has not
    /// begun yet. A source without conditions says nothing of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_ready: bool,
}

/// The taint by which cluster-autoscaler says that it is about to delete a Node.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, …
    pub kind: String,
    /// The address as text.
    pub address: String,
}

object!(Node, "Nodes");
