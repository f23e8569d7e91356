//! Packets that say to be of a flow that is in, from those whose flow it is not.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tweed_lab::{ClusterPod, LabError, Netns, capture};

use super::datagrams::Datagrams;
use super::frames::{Probe, UDP, hand_made, number_of, send_frame, send_packet};
use super::scene::{Pods, Scene, address};
use super::ways::with_ipv6;
use crate::packets::{checksum, mac_of, send_ipv4, vxlan_payload};

const PORT: u16 = 7010;
const VXLAN: u16 = 8472;
const NODES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 11), Ipv4Addr::new(192, 0, 2, 12)];
/// How many packets of each kind are sent.
const COUNT: u16 = 20;

/// A server on node 1, a client on `node`, and a flow between them that is in.
struct Flow {
    scene: Scene,
    server: ClusterPod,
    client: ClusterPod,
    datagrams: Option<Datagrams>,
    ends: (SocketAddr, SocketAddr),
    way: &'static str,
}

impl Flow {
    /// It is of IPv4.
    fn open(args: &[&str], node: u8, way: &'static str) -> Result<Self, LabError> {
        let mut scene = Scene::prepared("on", args, Pods::Both, with_ipv6)?;
        let server = scene.cluster.pod(1, "server")?;
        let client = scene.cluster.pod(node, "client")?;
        let nowhere = SocketAddr::new(server.address(), 0);
        let mut flow = Self {
            scene,
            server,
            client,
            datagrams: None,
            ends: (nowhere, nowhere),
            way,
        };
        flow.is_of(true)?;
        Ok(flow)
    }

    /// Ends it, and opens one of this family.
    fn is_of(&mut self, is_ipv4: bool) -> Result<(), LabError> {
        self.datagrams.take().map(Datagrams::end);
        let at = SocketAddr::new(address(&self.server, is_ipv4), PORT);
        let pause = Duration::from_millis(5);
        let from = self.client.netns();
        let datagrams = Datagrams::open(from, at, &self.server, PORT, pause)?;
        self.ends = (datagrams.source, at);
        self.datagrams = Some(datagrams);
        self.scene.wait_for(1, self.way)
    }

    /// How many of the packets that `forge` sends, and then of as many of the client, arrive.
    fn arrive(
        &self,
        forge: impl Fn(u16, &[u8]) -> Result<(), LabError>,
        control: impl Fn(u16, &[u8]) -> Result<(), LabError>,
    ) -> Result<[usize; 2], LabError> {
        let captured = capture(self.server.netns(), "eth0", "-xx -Q in udp")?;
        let probe = Probe::new(UDP);
        let (from, to) = self.ends;
        for number in 1000..1000 + COUNT {
            forge(number, &probe.bytes(number, from, to))?;
        }
        for number in 2000..2000 + COUNT {
            control(number, &probe.bytes(number, from, to))?;
        }
        std::thread::sleep(Duration::from_millis(500));
        let frames = hand_made(&captured.stop()?);
        let numbers: Vec<u16> = frames.iter().map(|frame| number_of(frame)).collect();
        let of = |first: u16| {
            let range = first..first + COUNT;
            numbers
                .iter()
                .filter(|number| range.contains(number))
                .count()
        };
        Ok([of(1000), of(2000)])
    }
}

/// None of the forged arrived, and all of the client's own.
const RIGHT: [usize; 2] = [0, COUNT as usize];

#[test]
fn another_pod_of_the_node_sends_as_the_client() -> Result<(), LabError> {
    for (args, node, way) in [
        (&[][..], 1, "local"),
        (&[][..], 2, "vxlan-in"),
        (&["--backend", "direct"][..], 2, "direct-in"),
    ] {
        let mut flow = Flow::open(args, node, way)?;
        let rogue = flow.scene.cluster.pod(node, "rogue")?;
        let other = flow.scene.cluster.pod(3 - node, "other")?;
        // The programs are at the links of all pods.
        let pods = if node == 1 { [3, 1] } else { [2, 2] };
        for (index, pods) in [node, 3 - node].into_iter().zip(pods) {
            flow.scene.wait_for_hooks(index, 2 * pods + 2)?;
        }
        for is_ipv4 in [true, false] {
            flow.is_of(is_ipv4)?;
            let before = [1, 2].map(|node| flow.scene.left(node, "unknown-flow").unwrap());
            for from in [&rogue, &other] {
                let arrived = flow.arrive(
                    |_, packet| send_packet(from.netns(), packet),
                    |_, packet| send_packet(flow.client.netns(), packet),
                )?;
                assert_eq!(arrived, RIGHT, "{way} to {:?}", flow.ends);
            }
            for (node, before) in [1, 2].into_iter().zip(before) {
                let counted = flow.scene.left(node, "unknown-flow")? - before;
                assert!(
                    counted >= f64::from(COUNT),
                    "{way}: {counted} on node {node}"
                );
            }
        }
    }
    Ok(())
}

/// A packet of VXLAN without a UDP checksum, as another node sends it.
fn outer(source: Ipv4Addr, vni: u32, mac: [u8; 6], inner: &[u8]) -> Vec<u8> {
    let payload = vxlan_payload(vni, mac, inner);
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend((20 + length).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    packet.extend(source.octets());
    packet.extend(NODES[0].octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(50_000_u16.to_be_bytes());
    packet.extend(VXLAN.to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn vxlan_of_others_and_of_other_networks() -> Result<(), LabError> {
    let mut flow = Flow::open(&[], 2, "vxlan-in")?;
    flow.scene.cluster.add_node(3)?;
    let stranger_at = Ipv4Addr::new(192, 0, 2, 77);
    let underlay = flow.scene.cluster.underlay();
    let stranger = underlay.plug("stranger", stranger_at, 1500)?;
    let mac = mac_of(flow.scene.node(1), "tweed.1")?;
    // The inner source address tells the kernel's path the way; the outer one is the sender's.
    let third = flow.scene.cluster[3].node.address();
    let from = |netns: &Netns, address, vni, inner: &[u8]| {
        send_ipv4(netns, &outer(address, vni, mac, inner))
    };
    for is_ipv4 in [true, false] {
        flow.is_of(is_ipv4)?;
        let right = flow.scene.node(2);
        let senders: [(&str, &Netns, Ipv4Addr, u32); 3] = [
            ("a stranger", &stranger, stranger_at, 1),
            ("another node", flow.scene.node(3), third, 1),
            ("another network", right, NODES[1], 2),
        ];
        for (name, netns, address, vni) in senders {
            flow.scene.wait_for(1, "vxlan-in")?;
            let refused = flow.scene.left(1, "outer-header")?;
            let arrived = flow.arrive(
                |_, inner| from(netns, address, vni, inner),
                |_, inner| from(right, NODES[1], 1, inner),
            )?;
            let ends = flow.ends;
            assert_eq!(arrived, RIGHT, "{name} to {ends:?}");
            let refused = flow.scene.left(1, "outer-header")? - refused;
            let expected = if vni == 1 { f64::from(COUNT) } else { 0.0 };
            assert!(refused >= expected, "{name} to {ends:?}: {refused}");
        }
    }
    Ok(())
}

/// By the client itself: frames for another machine, and of a VLAN.
#[test]
fn frames_for_others_and_of_vlans() -> Result<(), LabError> {
    for (node, way) in [(1, "local"), (2, "vxlan-in")] {
        let flow = Flow::open(&[], node, way)?;
        let client = flow.client.netns();
        let gateway = client.json("ip -j route get 192.0.2.99")?;
        let gateway = gateway[0]["gateway"].as_str().unwrap().to_owned();
        let mac = mac_of(flow.scene.node(node), flow.client.result().host_link())?;
        let text = mac.map(|byte| format!("{byte:02x}")).join(":");
        let set = |mac: &str| {
            client.ip([format!(
                "neigh replace {gateway} lladdr {mac} dev eth0 nud permanent"
            )])
        };
        set("02:00:00:00:00:99")?;
        let arrived = flow.arrive(
            |_, packet| send_ipv4(client, packet),
            |number, packet| {
                if number == 2000 {
                    set(&text)?;
                }
                send_ipv4(client, packet)
            },
        )?;
        assert_eq!(arrived, RIGHT, "for another machine, {way}");
        let own = mac_of(client, "eth0")?;
        let head = [mac, own].concat();
        let send = |tag: &[u8], packet: &[u8]| {
            send_frame(
                client,
                "eth0",
                &[&head, tag, &[0x08, 0x00], packet].concat(),
            )
        };
        let arrived = flow.arrive(
            |_, packet| send(&[0x81, 0x00, 0, 5], packet),
            |_, packet| send(&[], packet),
        )?;
        assert_eq!(arrived, RIGHT, "of a VLAN, {way}");
    }
    Ok(())
}
