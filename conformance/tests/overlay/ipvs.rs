//! IPVS on a node, as kube-proxy's mode of that name uses it. It takes packets at the
//! hook input and sends them on by the hook output, past everything that sees forwarded
//! packets. Not every kernel has it, so these tests run only when they are asked for.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tweed_lab::{
    Cluster, ClusterPod, EchoServer, LabError, Netns, Transport, source_seen, wait_until,
};

use crate::packets::{PORT, Receiver, for_pod, send_udp};

/// The virtual address, as a Service's cluster IP.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 99);

const LIMIT: Duration = Duration::from_secs(30);

/// Counts forged packets that leave a node for the VXLAN port of another, by the source
/// MAC that [`for_pod`] gives to the frame inside.
const PROBE: &str = "table inet probe { chain out {
    type filter hook postrouting priority 500;
    udp dport 8472 @th,176,48 0x020000000066 counter
  }
}";

/// Packets that the counters of a chain have seen.
fn counted(node: &Netns, table: &str, chain: &str) -> Result<u64, LabError> {
    let listed = node.json(&format!("nft -j list chain inet {table} {chain}"))?;
    let objects = listed["nftables"].as_array().cloned().unwrap_or_default();
    let packets = objects
        .iter()
        .filter_map(|object| object["rule"]["expr"].as_array())
        .flatten()
        .filter_map(|expression| expression["counter"]["packets"].as_u64());
    Ok(packets.sum())
}

fn wait_for_more(node: &Netns, table: &str, chain: &str, than: u64) -> Result<(), LabError> {
    let what = format!("the counter of {table} {chain} to rise");
    wait_until(&what, LIMIT, || match counted(node, table, chain) {
        Ok(now) if now > than => Ok(()),
        Ok(now) => Err(format!("{now} packets")),
        Err(error) => Err(error.chain()),
    })
}

/// Two nodes with a pod each; node 1 has IPVS.
struct Beside {
    cluster: Cluster,
    near: ClusterPod,
    far: ClusterPod,
}

impl Beside {
    fn start(conntrack: &str) -> Result<Self, LabError> {
        let mut cluster = Cluster::start(2)?;
        let (near, far) = (cluster.pod(1, "near")?, cluster.pod(2, "far")?);
        Cluster::wait_for_path(near.netns(), far.address())?;
        let node = cluster[1].node.netns();
        node.ip([format!("addr add {SERVICE}/32 dev lo")])?;
        node.sh("ipvsadm -C")?;
        node.set_sysctl("ipv4/vs/conntrack", conntrack)?;
        node.nft(PROBE)?;
        Ok(Self { cluster, near, far })
    }

    fn node(&self) -> &Netns {
        self.cluster[1].node.netns()
    }

    /// A service on this port whose only backend is `to`, with its address translated.
    fn serve(&self, protocol: char, port: u16, to: SocketAddr) -> Result<(), LabError> {
        let service = format!("-{protocol} {SERVICE}:{port}");
        self.node().sh(&format!("ipvsadm -A {service}"))?;
        self.node()
            .sh(&format!("ipvsadm -a {service} -r {to} -m"))?;
        Ok(())
    }

    fn forge(&self, port: u16, text: &str) -> Result<(), LabError> {
        let payload = for_pod(&self.cluster, 2, &self.far, text)?;
        send_udp(
            self.near.netns(),
            SocketAddrV4::new(SERVICE, port),
            &payload,
        )
    }
}

/// Nothing that a pod sends through an IPVS service reaches a node's VXLAN port. Without
/// the chain that refuses it, it leaves the node.
fn vxlan_is_not_passed_on(conntrack: &str) -> Result<(), LabError> {
    let mut beside = Beside::start(conntrack)?;
    let vxlan = SocketAddrV4::new(beside.cluster[2].node.address(), 8472);
    for port in [53, 8472] {
        beside.serve('u', port, vxlan.into())?;
    }
    let receiver = Receiver::open(beside.far.netns(), PORT)?;

    // Another port: only what IPVS sends on is recognised.
    beside.forge(53, "forged")?;
    wait_for_more(beside.node(), "tweed", "vxlan_passed_on", 0)?;
    // VXLAN's own port: refused before IPVS sees it.
    let before = counted(beside.node(), "tweed", "input")?;
    beside.forge(8472, "forged")?;
    wait_for_more(beside.node(), "tweed", "input", before)?;
    assert_eq!(counted(beside.node(), "probe", "out")?, 0);
    let control = for_pod(&beside.cluster, 2, &beside.far, "control")?;
    send_udp(beside.node(), vxlan, &control)?;
    assert_eq!(receiver.received_until("control"), Vec::<String>::new());

    // The control has been counted too, as its frame has the same source.
    let before = counted(beside.node(), "probe", "out")?;
    let agent = beside.cluster.entry(1)?.agent.as_mut();
    agent.unwrap().process().freeze()?;
    beside
        .node()
        .sh("nft flush chain inet tweed vxlan_passed_on")?;
    beside.forge(53, "forged")?;
    wait_for_more(beside.node(), "probe", "out", before)
}

#[test]
#[ignore = "needs a kernel with IPVS, and ipvsadm: make kernels"]
fn a_pod_cannot_speak_vxlan_through_ipvs() -> Result<(), LabError> {
    vxlan_is_not_passed_on("0")
}

#[test]
#[ignore = "needs a kernel with IPVS, and ipvsadm: make kernels"]
fn a_pod_cannot_speak_vxlan_through_ipvs_with_conntrack() -> Result<(), LabError> {
    vxlan_is_not_passed_on("1")
}

/// A service of kube-proxy's IPVS mode works, on the same node and across the overlay.
fn services_work(conntrack: &str) -> Result<(), LabError> {
    let beside = Beside::start(conntrack)?;
    let _server = EchoServer::start(beside.far.netns(), PORT)?;
    let backend = SocketAddr::new(beside.far.address(), PORT);
    for (protocol, transport) in [('u', Transport::Udp), ('t', Transport::Tcp)] {
        beside.serve(protocol, 80, backend)?;
        let service = SocketAddr::from((SERVICE, 80));
        let seen = source_seen(beside.near.netns(), service, transport)?;
        assert_eq!(seen.ip(), beside.near.address());
    }
    Ok(())
}

#[test]
#[ignore = "needs a kernel with IPVS, and ipvsadm: make kernels"]
fn a_service_of_ipvs_leads_to_a_pod_of_another_node() -> Result<(), LabError> {
    services_work("0")
}

#[test]
#[ignore = "needs a kernel with IPVS, and ipvsadm: make kernels"]
fn a_service_of_ipvs_with_conntrack_leads_to_a_pod_of_another_node() -> Result<(), LabError> {
    services_work("1")
}
