//! Packet by packet as by the kernel's path: the same cluster sends the same packets of the
//! same flow with the fast path and without, and captures where they arrive.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use tweed_lab::{ClusterPod, LabError, Netns, capture, wait_until};

use super::datagrams::Datagrams;
use super::frames::{DF, Probe, TCP, UDP, comparable, hand_made};
use super::scene::{LIMIT, Pods, Scene, connect};

const PORT: u16 = 7010;
const MORE: u16 = 0x2000;

/// Packets of which the fast path takes all.
fn plain(protocol: u8, is_ipv4: bool) -> Vec<Probe> {
    let new = || Probe::new(protocol);
    let tos = |tos| Probe { tos, ..new() };
    let ttl = |ttl| Probe { ttl, ..new() };
    vec![
        new(),
        tos(0xb8),
        tos(0x01),
        tos(0x02),
        tos(0x03),
        tos(0xbb),
        ttl(255),
        ttl(3),
        Probe {
            fragment: 0,
            ..new()
        },
        Probe {
            fragment: 0x8000,
            ..new()
        },
        Probe {
            padding: 1200,
            ..new()
        },
        Probe {
            has_checksum: protocol == TCP || !is_ipv4,
            ..new()
        },
    ]
}

/// Packets that are the kernel's.
fn odd(protocol: u8, is_ipv4: bool) -> Vec<Probe> {
    let new = || Probe::new(protocol);
    // So that the first ends with eight bytes of its payload.
    let (padding, offset) = if protocol == UDP { (15, 4) } else { (11, 5) };
    let has_checksum = protocol == TCP || !is_ipv4;
    vec![
        Probe { ttl: 1, ..new() },
        Probe { ttl: 2, ..new() },
        Probe {
            options: vec![1, 1, 1, 0],
            ..new()
        },
        Probe {
            fragment: MORE,
            padding,
            has_checksum,
            ..new()
        },
        Probe {
            fragment: offset,
            padding,
            has_checksum,
            ..new()
        },
        Probe {
            fragment: DF,
            padding: 700,
            ..new()
        },
    ]
}

/// Packets beyond the MTU of the way, by a sender whose own link has a larger one.
fn large(protocol: u8, is_ipv4: bool) -> Vec<Probe> {
    let new = || Probe {
        padding: 1380,
        ..Probe::new(protocol)
    };
    let without_df = Probe {
        fragment: 0,
        ..new()
    };
    // The sender's own stack knows better after the first of IPv6.
    if is_ipv4 {
        vec![new(), without_df]
    } else {
        vec![new()]
    }
}

/// A flow that is kept alive while others send as it does.
enum Kept {
    Udp(Datagrams),
    Tcp(TcpStream, JoinHandle<()>),
}

impl Kept {
    fn open(
        protocol: u8,
        from: &ClusterPod,
        at: SocketAddr,
        to: &ClusterPod,
    ) -> Result<(Self, u16), LabError> {
        let pause = Duration::from_millis(2);
        if protocol == UDP {
            let datagrams = Datagrams::open(from.netns(), at, to, PORT, pause)?;
            let port = datagrams.source.port();
            return Ok((Self::Udp(datagrams), port));
        }
        let (client, peer) = connect(from.netns(), at, to, PORT)?;
        let port = client.local_addr().unwrap().port();
        let socket = client.try_clone().unwrap();
        let moving = std::thread::spawn(move || super::scene::go_back_and_forth(&client, &peer));
        Ok((Self::Tcp(socket, moving), port))
    }

    fn end(self) {
        match self {
            Self::Udp(datagrams) => {
                let [sent, arrived, answered] = datagrams.end();
                assert_eq!((sent, sent), (arrived, answered));
            }
            Self::Tcp(socket, moving) => {
                socket.shutdown(std::net::Shutdown::Both).unwrap();
                moving.join().unwrap();
            }
        }
    }
}

/// Where frames are captured: namespace, link and what is captured there.
type Place<'a> = (&'static str, &'a Netns, &'static str, &'static str);

/// What has come to each place of these packets, sorted.
fn seen(
    places: &[Place<'_>],
    client: &Netns,
    probes: &[Probe],
    ends: (SocketAddr, SocketAddr),
) -> Result<BTreeMap<&'static str, Vec<Vec<u8>>>, LabError> {
    let mut captures = Vec::new();
    for (name, netns, link, filter) in places {
        captures.push((*name, capture(netns, link, &format!("-xx -Q in {filter}"))?));
    }
    for (number, probe) in (1000..).zip(probes) {
        probe.send(
            client,
            if probe.fragment & 0x3fff == 0 {
                number
            } else {
                999
            },
            ends.0,
            ends.1,
        )?;
    }
    // The last of them is not lost, and comes after the others.
    std::thread::sleep(Duration::from_millis(300));
    let mut all = BTreeMap::new();
    for (name, capture) in captures {
        let is_pod = name == "pod";
        let captured = hand_made(&capture.stop()?).into_iter();
        let mut frames: Vec<_> = captured.map(|frame| comparable(frame, is_pod)).collect();
        frames.sort();
        all.insert(name, frames);
    }
    Ok(all)
}

/// Pods keep an MTU with which they were made; that of the way becomes a lower one.
fn lower_mtu(scene: &Scene) -> Result<u32, LabError> {
    let device = scene.node(1).sh("ip link show tweed.1").is_ok();
    for index in [1, 2] {
        let node = scene.node(index);
        node.ip(["link set eth0 mtu 1400"])?;
        if device {
            wait_until("the device to have a lower MTU", LIMIT, || {
                let link = node
                    .sh("ip link show tweed.1")
                    .map_err(|error| error.chain())?;
                if link.contains("mtu 1350") {
                    Ok(())
                } else {
                    Err(link)
                }
            })?;
        }
    }
    Ok(if device { 1350 } else { 1400 })
}

/// Which flow.
struct Case<'a> {
    args: &'a [&'a str],
    protocol: u8,
    is_ipv4: bool,
    /// On node 1, to which it leads, and on that where it begins.
    ways: [(u8, &'a str); 2],
}

/// The ways of packets on node 1, and on that where they begin.
const LOCAL: [(u8, &str); 2] = [(1, "local"); 2];
const VXLAN: [(u8, &str); 2] = [(1, "vxlan-in"), (2, "vxlan-out")];
const DIRECT: [(u8, &str); 2] = [(1, "direct-in"), (2, "direct-out")];

impl Case<'static> {
    fn new(protocol: u8, is_ipv4: bool, ways: [(u8, &'static str); 2]) -> Self {
        let is_direct = ways == DIRECT;
        Self {
            args: if is_direct {
                &["--backend", "direct"]
            } else {
                &[]
            },
            protocol,
            is_ipv4,
            ways,
        }
    }
}

/// What the kernel's path does with packets of a flow of `protocol`, and the fast path.
fn compare(case: &Case) -> Result<(), LabError> {
    let Case {
        args,
        protocol,
        is_ipv4,
        ways,
    } = *case;
    let is_far = ways[1].0 == 2;
    let family = if is_ipv4 { "-4" } else { "-6" };
    let pods = if is_ipv4 { Pods::Ipv4 } else { Pods::Ipv6 };
    let mut scene = Scene::with_fast_path("off", args, pods)?;
    scene.carry_pods()?;
    let server = scene.cluster.pod(1, "server")?;
    let client = scene.cluster.pod(if is_far { 2 } else { 1 }, "client")?;
    let at = SocketAddr::new(server.address(), PORT);
    let (kept, port) = Kept::open(protocol, &client, at, &server)?;
    let ends = (SocketAddr::new(client.address(), port), at);
    let (plain, odd, large) = (
        plain(protocol, is_ipv4),
        odd(protocol, is_ipv4),
        large(protocol, is_ipv4),
    );
    let mtu = if is_far { lower_mtu(&scene)? } else { 1450 };
    let look = |scene: &Scene| -> Result<_, LabError> {
        let mut places = vec![
            ("pod", server.netns(), "eth0", "ip or ip6"),
            ("sender", client.netns(), "eth0", "icmp or icmp6"),
        ];
        if is_far {
            places.push(("wire", scene.node(1), "eth0", "ip or ip6"));
        }
        let of = |probes| seen(&places, client.netns(), probes, ends);
        let before = scene.sum(1, "tweed_fast_path_packets_total")?;
        let first = of(&plain)?;
        let taken = scene.sum(1, "tweed_fast_path_packets_total")? - before;
        let odd = of(&odd)?;
        if !is_far {
            return Ok(([first, odd, BTreeMap::new()], taken));
        }
        client
            .netns()
            .sh(&format!("ip {family} route flush cache"))?;
        let large = of(&large)?;
        let path = format!("ip {family} route get {}", server.address());
        let path = client.netns().sh(&path)?;
        // A connection believes only what is about one of its own segments.
        assert!(
            protocol == TCP || path.contains(&format!("mtu {mtu}")),
            "{path}"
        );
        Ok(([first, odd, large], taken))
    };
    let (kernel, taken) = look(&scene)?;
    assert_eq!(taken, 0.0, "without the fast path");
    scene.start("on")?;
    for (index, way) in ways {
        scene.wait_for(index, way)?;
    }
    let (fast, taken) = look(&scene)?;
    assert!(taken > 20.0, "{}", scene.all(1));
    for (which, (kernel, fast)) in ["plain", "odd", "large"]
        .iter()
        .zip(kernel.iter().zip(&fast))
    {
        for (place, frames) in kernel {
            println!("{which} at {place}: {} frames", frames.len());
            let other = &fast[place];
            let only = |one: &[Vec<u8>], other: &[Vec<u8>]| {
                let texts = one.iter().filter(|frame| !other.contains(frame));
                texts
                    .map(|frame| format!("{frame:02x?}"))
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            assert_eq!(
                frames,
                other,
                "{which} at {place}: the kernel's alone\n{}\nthe fast path's alone\n{}",
                only(frames, other),
                only(other, frames)
            );
        }
        assert!(kernel.is_empty() || !kernel["sender"].is_empty() || *which == "plain");
    }
    assert_eq!(kernel[0]["pod"].len(), plain.len());
    kept.end();
    Ok(())
}

#[test]
fn udp_on_one_node() -> Result<(), LabError> {
    compare(&Case::new(UDP, true, LOCAL))
}

#[test]
fn udp_by_vxlan() -> Result<(), LabError> {
    compare(&Case::new(UDP, true, VXLAN))
}

#[test]
fn udp_over_ipv6_on_one_node() -> Result<(), LabError> {
    compare(&Case::new(UDP, false, LOCAL))
}

#[test]
fn udp_over_ipv6_by_vxlan() -> Result<(), LabError> {
    compare(&Case::new(UDP, false, VXLAN))
}

#[test]
fn udp_by_a_plain_route() -> Result<(), LabError> {
    compare(&Case::new(UDP, true, DIRECT))
}

#[test]
fn tcp_on_one_node() -> Result<(), LabError> {
    compare(&Case::new(TCP, true, LOCAL))
}

#[test]
fn tcp_by_vxlan() -> Result<(), LabError> {
    compare(&Case::new(TCP, true, VXLAN))
}

#[test]
fn tcp_over_ipv6_on_one_node() -> Result<(), LabError> {
    compare(&Case::new(TCP, false, LOCAL))
}

#[test]
fn tcp_over_ipv6_by_vxlan() -> Result<(), LabError> {
    compare(&Case::new(TCP, false, VXLAN))
}

#[test]
fn tcp_by_a_plain_route() -> Result<(), LabError> {
    compare(&Case::new(TCP, true, DIRECT))
}
