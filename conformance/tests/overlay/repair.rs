//! Repair: each object that the agent keeps is damaged while the agent is stopped, and
//! restored after it continues.

use nix::sys::signal::Signal;
use tweed_lab::{Cluster, ClusterPod, LabError, Netns};

use crate::state::{settled_state, state, wait_for_state};

/// The objects that the command lines of a case may name.
struct Target<'a> {
    node: &'a Netns,
    pod: &'a ClusterPod,
}

impl Target<'_> {
    /// The MAC of the other node's VTEP.
    fn far_mac(&self) -> Result<String, LabError> {
        let neighbours = self
            .node
            .json("ip -j neigh show dev tweed.1 nud permanent")?;
        Ok(neighbours[0]["lladdr"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Runs a line in which `LINK`, `POD` and `MAC` are replaced.
    fn run(&self, line: &str) -> Result<(), LabError> {
        let mut line = line
            .replace("LINK", self.pod.result().host_link())
            .replace("POD", &self.pod.address().to_string());
        if line.contains("MAC") {
            line = line.replace("MAC", &self.far_mac()?);
        }
        match line
            .strip_prefix("sysctl ")
            .and_then(|rest| rest.split_once('='))
        {
            Some((key, value)) => self.node.set_sysctl(key, value),
            None => self.node.sh(&line).map(drop),
        }
    }
}

/// Does each damage to node 1 and waits until it is undone, one after the other. Each has a
/// line: its name, and the commands that do it.
fn are_repaired(damages: &str) -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let pod = cluster.pod(1, "near")?;
    let far = cluster.pod(2, "far")?;
    for damage in damages.trim().lines() {
        let (name, lines) = damage.split_once(": ").unwrap();
        if let Err(error) = is_repaired(&mut cluster, [&pod, &far], lines) {
            panic!("{name}: {}", error.chain());
        }
    }
    let agent = cluster.entry(1)?.agent.as_ref().unwrap();
    let log = agent.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("put back what"))
        .collect();
    assert!(!lines.is_empty(), "{log}");
    for line in lines {
        assert!(
            line.contains("objects=\"") && !line.contains("objects=\"\""),
            "{line}"
        );
    }
    Ok(())
}

fn is_repaired(
    cluster: &mut Cluster,
    [pod, far]: [&ClusterPod; 2],
    lines: &str,
) -> Result<(), LabError> {
    Cluster::wait_for_path(pod.netns(), far.address())?;
    let before = settled_state(cluster[1].node.netns())?;
    let agent = cluster.entry(1)?.agent.as_mut().unwrap();
    agent.process().freeze()?;
    let node = cluster[1].node.netns();
    for line in lines.split("; ") {
        Target { node, pod }.run(line)?;
    }
    let changes = before.changes(&state(node)?);
    assert!(!changes.is_empty(), "{lines:?} damaged nothing");
    let agent = cluster.entry(1)?.agent.as_mut().unwrap();
    agent.process().signal(Signal::SIGCONT);

    let node = cluster[1].node.netns();
    wait_for_state(node, &before)?;
    Cluster::wait_for_path(pod.netns(), far.address())?;
    Cluster::wait_for_path(node, pod.address())
}

/// The way to other nodes.
const OVERLAY: &str = "
vxlan_device_deleted: ip link del tweed.1
vxlan_device_down: ip link set tweed.1 down
vxlan_device_mac: ip link set tweed.1 address 02:00:00:00:00:99
vxlan_device_mtu: ip link set tweed.1 mtu 1200
vxlan_device_group: ip link set tweed.1 group 116
vxlan_device_ttl: ip link set tweed.1 type vxlan ttl 9
vxlan_device_port: ip link del tweed.1; ip link add tweed.1 type vxlan id 1 dstport 4789 nolearning local 192.0.2.11
vxlan_device_learning: ip link del tweed.1; ip link add tweed.1 type vxlan id 1 dstport 8472 learning local 192.0.2.11
vxlan_address_deleted: ip addr del 10.244.1.0/32 dev tweed.1
vxlan_address_replaced: ip addr del 10.244.1.0/32 dev tweed.1; ip addr add 10.244.1.9/32 dev tweed.1
route_to_node_deleted: ip route del 10.244.2.0/24
route_to_node_changed: ip route replace 10.244.2.0/24 via 192.0.2.1 proto 116
unknown_route_added: ip route add 10.99.0.0/24 via 192.0.2.1 proto 116
unreachable_route_deleted: ip route del unreachable 10.244.1.0/24 metric 4294967295
fdb_entry_deleted: bridge fdb del MAC dev tweed.1
fdb_entry_changed: bridge fdb replace MAC dev tweed.1 dst 192.0.2.13 self permanent
fdb_entry_added: bridge fdb add 02:00:00:00:00:99 dev tweed.1 dst 192.0.2.13 self permanent
neighbour_deleted: ip neigh del 10.244.2.0 dev tweed.1
neighbour_changed: ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:99 dev tweed.1 nud permanent
neighbour_added: ip neigh add 10.99.0.0 lladdr 02:00:00:00:00:99 dev tweed.1 nud permanent
";

/// The ends of pods.
const PODS: &str = "
pod_route_deleted: ip route del POD/32
pod_route_without_source: ip route replace POD/32 dev LINK scope link proto 116
pod_route_prepended: ip route prepend POD/32 via 192.0.2.1 proto 116
pod_neighbour_deleted: ip neigh del POD dev LINK
pod_neighbour_changed: ip neigh replace POD lladdr 02:00:00:00:00:99 dev LINK nud permanent
pod_link_down: ip link set LINK down
pod_link_mtu: ip link set LINK mtu 1280
pod_link_mac: ip link set LINK address 02:00:00:00:00:98
pod_link_group: ip link set LINK group default
pod_link_group_and_route: ip link set LINK group 117; ip route del POD/32
pod_link_accept_ra: sysctl ipv6/conf/LINK/accept_ra=1
pod_link_autoconf: sysctl ipv6/conf/LINK/autoconf=1
pod_link_redirects: sysctl ipv4/conf/LINK/send_redirects=1
";

/// Rules and sysctls of the node.
const NODE: &str = "
forwarding_off: sysctl ipv4/ip_forward=0
table_deleted: nft delete table inet tweed
table_emptied: nft flush table inet tweed
chain_added: nft add chain inet tweed foreign
node_address_removed: nft delete element inet tweed node_addresses4 { 192.0.2.12 }
vxlan_source_added: nft add element inet tweed vxlan_ipv4_24_sources4 { 192.0.2.99 . 0x0af40200 }
";

#[test]
fn the_way_to_other_nodes_is_repaired() -> Result<(), LabError> {
    are_repaired(OVERLAY)
}

#[test]
fn the_ends_of_pods_are_repaired() -> Result<(), LabError> {
    are_repaired(PODS)
}

#[test]
fn rules_and_sysctls_are_repaired() -> Result<(), LabError> {
    are_repaired(NODE)
}
