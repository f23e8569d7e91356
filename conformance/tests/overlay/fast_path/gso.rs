//! Datagrams that the kernel carries as one packet: sent so (UDP_SEGMENT), or put together on
//! their way (GRO). Each arrives whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, UdpGsoSegment};
use tweed_lab::{ClusterPod, LabError, Netns, wait_until};

use super::scene::{LIMIT, Pods, Scene, address};
use crate::packets::failed;

const PORT: u16 = 7010;
/// Datagrams of one call, and their length. They fit in 64 KiB together.
const SEGMENTS: usize = 40;
const LENGTH: u16 = 1200;
/// Calls with each setting.
const CALLS: usize = 25;
/// Room for all of one call, in bytes.
const ROOM: usize = 16 << 20;

/// What the kernel puts together and takes apart: on the links that send, and on those that
/// get it.
const SETTINGS: [[&str; 2]; 4] = [
    ["gso on tx-udp-segmentation on", "gro off"],
    ["gso on tx-udp-segmentation off", "gro off"],
    [
        "tx-udp-segmentation off",
        "gro on rx-udp-gro-forwarding off rx-gro-list on",
    ],
    [
        "tx-udp-segmentation off",
        "gro on rx-gro-list off rx-udp-gro-forwarding on",
    ],
];

/// A client that sends datagrams to a server.
struct Ends {
    client: UdpSocket,
    server: UdpSocket,
}

impl Ends {
    fn open(from: &Netns, at: SocketAddr, to: &ClusterPod) -> Result<Self, LabError> {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let server = to.netns().listen(|| UdpSocket::bind((any, PORT)))?;
        let client = from.listen(|| {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(at)?;
            Ok(socket)
        })?;
        let prepare = |socket: &UdpSocket| -> std::io::Result<()> {
            socket.set_read_timeout(Some(Duration::from_secs(2)))?;
            Ok(setsockopt(socket, RcvBufForce, &ROOM)?)
        };
        for socket in [&client, &server] {
            prepare(socket).map_err(|source| failed("listen", from, source))?;
        }
        setsockopt(&client, UdpGsoSegment, &i32::from(LENGTH))
            .map_err(|errno| failed("send", from, errno.into()))?;
        Ok(Self { client, server })
    }

    /// Sends datagrams in one call. All of them, and nothing else, arrive.
    fn send(&self, call: usize) -> Result<(), String> {
        let of = |number: usize| vec![u8::try_from(call ^ number).unwrap(); LENGTH.into()];
        let mut sent: Vec<Vec<u8>> = (0..SEGMENTS).map(of).collect();
        self.client.send(&sent.concat()).unwrap();
        let mut arrived = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while arrived.len() < SEGMENTS {
            let received = self.server.recv_from(&mut buffer);
            let (length, from) =
                received.map_err(|error| format!("{error} after {}", arrived.len()))?;
            arrived.push(buffer[..length].to_vec());
            if arrived.len() == SEGMENTS {
                self.server.send_to(b"all", from).unwrap();
            }
        }
        // Where a flow is let in, the next datagrams overtake those that the kernel still has.
        sent.sort();
        arrived.sort();
        let lengths: Vec<usize> = arrived.iter().map(Vec::len).collect();
        assert!(arrived == sent, "call {call}: {lengths:?}");
        let answer = self.client.recv(&mut buffer);
        answer
            .map(drop)
            .map_err(|error| format!("no answer: {error}"))
    }
}

/// Whether the kernel can do so.
fn set(netns: &Netns, link: &str, features: &str) -> bool {
    let set = netns.sh(&format!("ethtool -K {link} {features}"));
    if let Err(error) = &set {
        println!("skipped: {}", error.chain());
    }
    set.is_ok()
}

#[test]
fn datagrams_of_one_call_arrive_whole() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Both)?;
    let server = scene.cluster.pod(1, "server")?;
    let near = scene.cluster.pod(1, "near")?;
    let far = scene.cluster.pod(2, "far")?;
    for [send, receive] in SETTINGS {
        let pods = [(1, &server), (1, &near), (2, &far)];
        let is_set = pods.iter().all(|(node, pod)| {
            let (node, link) = (scene.node(*node), pod.result().host_link());
            set(pod.netns(), "eth0", send)
                && set(pod.netns(), "eth0", receive)
                && set(node, link, receive)
        });
        if !is_set
            || ![1, 2]
                .iter()
                .all(|at| set(scene.node(*at), "eth0", receive))
        {
            continue;
        }
        for is_ipv4 in [true, false] {
            let at = SocketAddr::new(address(&server, is_ipv4), PORT);
            for (client, ways) in [
                (&near, &[(1, "local")][..]),
                // The kernel takes those apart that come as one.
                (&far, &[(2, "vxlan-out")]),
            ] {
                check(&scene, &Ends::open(client.netns(), at, &server)?, ways)?;
            }
        }
    }
    Ok(())
}

/// Datagrams arrive whole, and most of them go these ways.
fn check(scene: &Scene, ends: &Ends, ways: &[(u8, &str)]) -> Result<(), LabError> {
    let bytes = || -> Result<Vec<f64>, LabError> {
        let of = |(node, way): &(u8, &str)| {
            let name = format!("tweed_fast_path_bytes_total{{way=\"{way}\"}}");
            scene.sum(*node, &name)
        };
        ways.iter().map(of).collect()
    };
    let of_a_call = f64::from(LENGTH) * 20.0;
    let what = format!("datagrams to go by {ways:?}");
    wait_until(&what, LIMIT, || {
        let before = bytes().map_err(|error| error.chain())?;
        ends.send(0)?;
        let after = bytes().map_err(|error| error.chain())?;
        let is_in = before
            .iter()
            .zip(&after)
            .all(|(one, other)| other - one > of_a_call);
        if is_in {
            Ok(())
        } else {
            Err(format!("{ways:?}: {before:?}, {after:?}"))
        }
    })?;
    let sent = (1..=CALLS).try_for_each(|call| ends.send(call));
    assert_eq!(sent, Ok(()), "{ways:?}");
    Ok(())
}
