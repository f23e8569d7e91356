//! Programs of the machine in a pod's network: probes that go on while the API
//! server, the kubelet or the runtime is away, and that signals reach.

use std::process::Command;

use serde_json::Value;

use super::cluster::Cluster;
use super::machine::Machine;
use crate::error::LabError;

impl Cluster {
    /// A command that will run a program of the machine in the network
    /// namespace of a pod, `namespace/name` or `name` in `default`. It is a
    /// child of this program, in no other namespace of the node or the pod.
    ///
    /// # Errors
    /// There is no such pod, or its node does not know of it yet.
    pub fn pod_command(&self, pod: &str, program: &str) -> Result<Command, LabError> {
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        let found = self
            .kubectl()
            .json(&format!("get pod {name} --namespace {namespace}"))?;
        let node = found["spec"]["nodeName"].as_str().unwrap_or_default();
        let machine = self.node(node)?;
        let path = netns_of(machine, namespace, name)?;
        let path = machine.outside(&path)?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", path.display()))
            .arg(program);
        Ok(command)
    }
}

/// The network namespace of a pod, as the node has it: that of its sandbox.
fn netns_of(machine: &Machine, namespace: &str, name: &str) -> Result<String, LabError> {
    let filter = format!(
        "labels.\"io.kubernetes.pod.name\"=={name},\
         labels.\"io.kubernetes.pod.namespace\"=={namespace},\
         labels.\"io.cri-containerd.kind\"==sandbox"
    );
    let ids = machine.ctr(&["containers", "list", "--quiet", &filter])?;
    // The last, should an earlier one not have been cleared away.
    let id = ids.lines().last().unwrap_or_default();
    let text = machine.ctr(&["containers", "info", id])?;
    serde_json::from_str(&text)
        .ok()
        .and_then(|info: Value| netns_in(&info))
        .ok_or(LabError::Output {
            command: format!("ctr containers info {id}"),
            expected: "a sandbox with a network namespace of its own",
            output: text,
        })
}

/// The path in a sandbox's spec. `/var/run` is a link, whose target would be
/// looked for outside of the node.
fn netns_in(sandbox: &Value) -> Option<String> {
    let path = sandbox["Spec"]["linux"]["namespaces"]
        .as_array()?
        .iter()
        .find(|namespace| namespace["type"] == "network")?["path"]
        .as_str()?;
    Some(path.strip_prefix("/var").unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_network_namespace_is_found_without_its_link() {
        let info = json!({ "Spec": { "linux": { "namespaces": [
            { "type": "pid" },
            { "type": "network", "path": "/var/run/netns/cni-1" },
        ]}}});
        assert_eq!(netns_in(&info).as_deref(), Some("/run/netns/cni-1"));
        assert_eq!(netns_in(&json!({})), None);
    }
}
