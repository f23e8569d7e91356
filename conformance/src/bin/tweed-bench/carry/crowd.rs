//! Many pods and many nodes, as far as packets of others can notice them.
//!
//! Pods: a link each with the pods' group, up, a host route and a permanent
//! neighbour, made by `ip -batch`; all far ends are in one namespace. Their
//! names, aliases and route protocol say that they are not tweed's, so no agent
//! touches them. Nodes: manifests in the agents' file, so that routes,
//! neighbours, forwarding entries and sets are those of the agents themselves.

use std::net::Ipv4Addr;

use tweed_lab::{Lab, Netns, Node, NodeManifest};

/// The group of pods' links.
const GROUP: u32 = 116;

/// `count` pods on each node. The far ends' namespaces are given back.
pub fn fill(lab: &Lab, nodes: &[Node], count: usize) -> anyhow::Result<Vec<Netns>> {
    let mut crowds = Vec::new();
    for node in nodes {
        let crowd = lab.netns(&format!("{}crowd", node.name()))?;
        let far = crowd.name();
        let links = (0..count).map(|pod| {
            format!("link add crowd{pod} group {GROUP} type veth peer name p{pod} netns {far}")
        });
        let rest = (0..count).flat_map(|pod| {
            let address = address(node, pod);
            [
                format!("link set crowd{pod} up"),
                format!("route add {address} dev crowd{pod} scope link"),
                format!("neigh add {address} lladdr 02:00:00:00:03:00 dev crowd{pod}"),
            ]
        });
        node.netns().ip(links)?;
        crowd.ip((0..count).map(|pod| format!("link set p{pod} up")))?;
        node.netns().ip(rest)?;
        crowds.push(crowd);
    }
    Ok(crowds)
}

/// The `pod`th address in the upper half of the node's /20: IPAM begins in the
/// lower one.
fn address(node: &Node, pod: usize) -> Ipv4Addr {
    let base = node.pod_cidr().split('/').next().unwrap_or_default();
    let base: Ipv4Addr = base.parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
    Ipv4Addr::from(u32::from(base) + 2048 + pod as u32)
}

/// `count` nodes that nobody meets, each with a /24.
pub fn strangers(count: usize) -> impl Iterator<Item = NodeManifest> {
    let pods = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    let addresses = u32::from(Ipv4Addr::new(198, 18, 0, 1));
    (0..count as u32).map(move |node| {
        let address = Ipv4Addr::from(addresses + node);
        let cidr = Ipv4Addr::from(pods + (node << 8));
        NodeManifest::new(&format!("stranger{node}"), address, &format!("{cidr}/24"))
    })
}
