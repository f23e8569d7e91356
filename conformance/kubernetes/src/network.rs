//! The reference plugins as the pods' network of a cluster, to compare tweed with.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnetwork::Ipv4Network;
use serde_json::{Value, json};

use crate::context::Context;
use crate::kubectl::Kubectl;
use crate::machine::Machine;
use tweed_lab::LabError;

/// Maximum time until the controller manager has given a new node its pod CIDR.
const CIDR_LIMIT: Duration = Duration::from_secs(60);

/// Waits until a node has a pod CIDR, and returns it.
pub(crate) fn pod_cidr(kubectl: &Kubectl, node: &str) -> Result<Ipv4Network, LabError> {
    kubectl.wait_for(&format!("the pod CIDR of {node}"), CIDR_LIMIT, || {
        let line = format!("get node {node}");
        let found = kubectl.json(&line).map_err(|error| error.chain())?;
        found["spec"]["podCIDR"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| found["spec"].to_string())
    })
}

/// Configures the reference plugins on `machine`, and routes between it and all
/// `others`. Packets between nodes have pods' addresses then, so the switch has to
/// accept these.
pub(crate) fn add_reference(
    context: &Context,
    kubectl: &Kubectl,
    machine: &Machine,
    others: &[&Machine],
) -> Result<(), LabError> {
    let cidr = pod_cidr(kubectl, machine.name())?;
    machine.netns().set_sysctl("ipv4/ip_forward", "1")?;
    context.underlay.allow_all(machine.name(), cidr)?;
    for other in others.iter().filter(|other| other.name() != machine.name()) {
        let theirs = pod_cidr(kubectl, other.name())?;
        let route = |cidr: Ipv4Network, via: Ipv4Addr| [format!("route replace {cidr} via {via}")];
        other.netns().ip(route(cidr, machine.spec().address))?;
        machine.netns().ip(route(theirs, other.spec().address))?;
    }
    let path = machine
        .host_path("/etc/cni/net.d")
        .join("10-reference.conflist");
    let draft = path.with_extension("new");
    fs::write(&draft, reference_config(cidr).to_string())
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|e| LabError::file("write", &path, e))
}

/// `bridge` with `host-local` and `portmap`.
fn reference_config(cidr: Ipv4Network) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "reference",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": cidr }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_assigns_addresses_of_the_nodes_pod_cidr() {
        let config = reference_config("10.244.3.0/24".parse().unwrap());
        let ipam = &config["plugins"][0]["ipam"];
        assert_eq!(ipam["ranges"][0][0]["subnet"], "10.244.3.0/24");
    }
}
