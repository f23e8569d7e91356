//! What flannel sets up, by hand: a VXLAN device, an entry for the other node, pods
//! on the reference bridge, and its masquerading and forwarding rules. And the
//! reference plugin `ptp` alone, without any rule.
//!
//! Modelled on flannel v0.27: `pkg/backend/vxlan`, `pkg/trafficmngr/iptables` and
//! the `delegate` of its manifest. Left out is what would slow it down: its agent,
//! and the checksum offload that some installations switch off.

use serde_json::{Value, json};
use tweed_lab::Node;

/// The network's name in the config.
pub const NETWORK: &str = "bench";
/// MTU of pods, in bytes: that of the nodes' link less VXLAN's 50, as tweed's.
const MTU: u32 = 1450;

/// The overlay between two nodes, whose pods are in `cluster`.
pub fn overlay(nodes: &[Node], cluster: &str) -> anyhow::Result<()> {
    for (at, node) in nodes.iter().enumerate() {
        let netns = node.netns();
        let Some(peer) = nodes.get(1 - at) else {
            continue;
        };
        let mac = |at: usize| format!("02:00:00:00:02:{at:02x}");
        let (own_mac, peer_mac) = (mac(at), mac(1 - at));
        let (own_cidr, peer_cidr) = (node.pod_cidr(), peer.pod_cidr());
        let (own_first, peer_first) = (first(own_cidr), first(peer_cidr));
        let (address, peer_address) = (node.address(), peer.address());
        netns.ip([
            format!("link add flannel.1 address {own_mac} mtu {MTU} type vxlan id 1 dstport 8472 local {address} dev eth0 nolearning"),
            format!("addr add {own_first}/32 dev flannel.1"),
            "link set flannel.1 up".to_owned(),
            format!("neigh add {peer_first} lladdr {peer_mac} dev flannel.1 nud permanent"),
            format!("route add {peer_cidr} via {peer_first} dev flannel.1 onlink"),
        ])?;
        netns.sh(&format!(
            "bridge fdb append {peer_mac} dev flannel.1 dst {peer_address}"
        ))?;
        for rule in rules(own_cidr, cluster) {
            netns.sh(&format!("iptables -w {rule}"))?;
        }
        let bridge = json!({
            "type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
            "hairpinMode": true, "ipMasq": false,
        });
        configure(node, bridge, cluster)?;
    }
    Ok(())
}

fn rules(own: &str, cluster: &str) -> [String; 11] {
    [
        "-t nat -N FLANNEL-POSTRTG".to_owned(),
        "-t nat -A POSTROUTING -j FLANNEL-POSTRTG".to_owned(),
        "-t nat -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN".to_owned(),
        format!("-t nat -A FLANNEL-POSTRTG -s {own} -d {cluster} -j RETURN"),
        format!("-t nat -A FLANNEL-POSTRTG -s {cluster} -d {own} -j RETURN"),
        format!("-t nat -A FLANNEL-POSTRTG ! -s {cluster} -d {own} -j RETURN"),
        format!(
            "-t nat -A FLANNEL-POSTRTG -s {cluster} ! -d 224.0.0.0/4 -j MASQUERADE --random-fully"
        ),
        format!(
            "-t nat -A FLANNEL-POSTRTG ! -s {cluster} -d {cluster} -j MASQUERADE --random-fully"
        ),
        "-N FLANNEL-FWD".to_owned(),
        "-A FORWARD -j FLANNEL-FWD".to_owned(),
        format!("-A FLANNEL-FWD -s {cluster} -j ACCEPT"),
    ]
}

/// `ptp` alone on a node.
pub fn ptp(node: &Node) -> anyhow::Result<()> {
    configure(node, json!({ "type": "ptp" }), "0.0.0.0/0")
}

/// Writes the config of `main` with host-local and switches forwarding on.
fn configure(node: &Node, mut main: Value, routes_to: &str) -> anyhow::Result<()> {
    main["mtu"] = MTU.into();
    main["ipam"] = json!({
        "type": "host-local",
        "ranges": [[{ "subnet": node.pod_cidr() }]],
        "routes": [{ "dst": routes_to }],
    });
    let config = json!({ "cniVersion": "1.0.0", "name": NETWORK, "plugins": [main] });
    node.write_cni_config("10-bench.conflist", &config.to_string())?;
    node.netns().set_sysctl("ipv4/ip_forward", "1")?;
    Ok(())
}

fn first(cidr: &str) -> &str {
    cidr.split('/').next().unwrap_or(cidr)
}
