//! A Pod as its source describes it: not yet validated.

use super::selector::Labels;

/// A Pod, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty if the source gives none.
    pub uid: String,
    /// The annotation `kubernetes.io/config.mirror`: the Pod mirrors a static pod of its
    /// node, and the kubelet knows that one by this UID.
    pub mirror: Option<String>,
    /// `metadata.creationTimestamp` in seconds since 1970. `None` counts as the
    /// oldest.
    pub created: Option<i64>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.nodeName`; empty before the pod is scheduled.
    pub node: String,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// The named ports of all containers, and of init containers that stay
    /// (`restartPolicy: Always`), in their order.
    pub ports: Vec<NamedPort>,
    /// `status.podIPs`, or `status.podIP` alone; empty texts are left out.
    pub addresses: Vec<String>,
    /// Whether `status.phase` is `Succeeded` or `Failed`: its address may be in use by
    /// another pod.
    pub finished: bool,
}

/// A port of a container that has a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    /// `name`.
    pub name: String,
    /// `protocol`; `TCP` if the source gives none.
    pub protocol: String,
    /// `containerPort`.
    pub port: u16,
}

impl Pod {
    /// The UID by which the kubelet knows the pod, and gives it to the runtime. `None`
    /// if the source gives none.
    pub fn kubelet_uid(&self) -> Option<&str> {
        let uid = self.mirror.as_deref().unwrap_or(&self.uid);
        (!uid.is_empty()).then_some(uid)
    }
}

object!(Pod, "Pods", namespace);
