//! The same messages sent by hand: for each node a neighbour, an FDB entry and
//! a route. All nodes: many in one send, the last of each send acknowledged. One
//! node: its three in one send, by a thread that was woken for it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use tweed_lab::Netns;

use super::fleet::FleetNode;

const DEVICE: &str = "floor.1";
/// Messages in one send.
const BATCH: usize = 500;
/// Room for one send.
const ROOM: usize = 4 << 20;

// `linux/rtnetlink.h`, `linux/neighbour.h`
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const NTF_SELF: u8 = 0x2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTNH_F_ONLINK: u32 = 4;
const RT_TABLE_MAIN: u8 = 254;
const PROTOCOL: u8 = 116;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;

/// A device that messages are about, and a socket for them.
pub struct Floor<'a> {
    netns: &'a Netns,
    index: u32,
    socket: OwnedFd,
}

impl<'a> Floor<'a> {
    /// Makes a device in `netns`.
    pub fn new(netns: &'a Netns) -> anyhow::Result<Self> {
        netns.ip([
            format!("link add {DEVICE} type vxlan id 1 dstport 8472 nolearning"),
            format!("addr add 10.200.0.0/32 dev {DEVICE}"),
            format!("link set {DEVICE} up"),
        ])?;
        let links = netns.json(&format!("ip -j link show {DEVICE}"))?;
        let index = links[0]["ifindex"].as_u64().context("no index")? as u32;
        Ok(Self {
            netns,
            index,
            socket: netns.enter(open)??,
        })
    }

    /// Takes the device away, and with it all that was made.
    pub fn end(self) -> anyhow::Result<()> {
        Ok(self.netns.ip([format!("link del {DEVICE}")])?)
    }

    /// How long the kernel takes for the messages of `nodes`.
    pub fn fill(&self, nodes: &[FleetNode]) -> anyhow::Result<Duration> {
        let mut sends = Vec::new();
        for part in [neighbour as Part, fdb, route] {
            for nodes in nodes.chunks(BATCH) {
                let mut bytes = Vec::new();
                for (at, node) in nodes.iter().enumerate() {
                    let last = at + 1 == nodes.len();
                    let flags = if last { ACKNOWLEDGE } else { 0 };
                    part(&mut bytes, node, self.index, flags)?;
                }
                sends.push(bytes);
            }
        }
        let start = Instant::now();
        for bytes in &sends {
            self.send(bytes)?;
        }
        Ok(start.elapsed())
    }

    /// The messages of one node.
    pub fn messages(&self, node: &FleetNode) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        neighbour(&mut bytes, node, self.index, 0)?;
        fdb(&mut bytes, node, self.index, 0)?;
        route(&mut bytes, node, self.index, ACKNOWLEDGE)?;
        Ok(bytes)
    }

    /// Sends whatever it is `told`, until nobody can tell any more.
    pub fn follow(&self, told: mpsc::Receiver<Vec<u8>>) -> anyhow::Result<()> {
        told.into_iter().try_for_each(|bytes| self.send(&bytes))
    }

    fn send(&self, bytes: &[u8]) -> anyhow::Result<()> {
        send(self.socket.as_raw_fd(), bytes, MsgFlags::empty())?;
        acknowledged(&self.socket)
    }
}

fn open() -> nix::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    setsockopt(&socket, sockopt::SndBufForce, &ROOM)?;
    Ok(socket)
}

/// The first answer: the acknowledgement of all, or the first refusal.
fn acknowledged(socket: &OwnedFd) -> anyhow::Result<()> {
    let mut buffer = [0; 8192];
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let answer = buffer.get(..length).unwrap_or_default();
    let kind = answer.get(4..).and_then(|rest| rest.first_chunk());
    let code = answer.get(16..).and_then(|rest| rest.first_chunk());
    match (
        kind.map(|kind| u16::from_ne_bytes(*kind)),
        code.map(|code| i32::from_ne_bytes(*code)),
    ) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => bail!("refused: {}", Errno::from_raw(-code)),
        _ => bail!("{length} bytes that are no acknowledgement"),
    }
}

type Part = fn(&mut Vec<u8>, &FleetNode, u32, u16) -> anyhow::Result<()>;

fn mac(node: &FleetNode) -> [u8; 6] {
    let [a, b, c, d] = node.address.octets();
    [2, 116, a, b, c, d]
}

fn neighbour(out: &mut Vec<u8>, node: &FleetNode, index: u32, flags: u16) -> anyhow::Result<()> {
    let gateway = node.gateway()?;
    message(out, RTM_NEWNEIGH, flags, |m| {
        neighbour_header(m, AF_INET, index, 0);
        attribute(m, NDA_DST, &gateway.octets());
        attribute(m, NDA_LLADDR, &mac(node));
    });
    Ok(())
}

fn fdb(out: &mut Vec<u8>, node: &FleetNode, index: u32, flags: u16) -> anyhow::Result<()> {
    message(out, RTM_NEWNEIGH, flags, |m| {
        neighbour_header(m, AF_BRIDGE, index, NTF_SELF);
        attribute(m, NDA_LLADDR, &mac(node));
        attribute(m, NDA_DST, &node.address.octets());
    });
    Ok(())
}

fn route(out: &mut Vec<u8>, node: &FleetNode, index: u32, flags: u16) -> anyhow::Result<()> {
    let gateway = node.gateway()?;
    message(out, RTM_NEWROUTE, flags, |m| {
        m.extend([AF_INET, 24, 0, 0, RT_TABLE_MAIN, PROTOCOL, 0, RTN_UNICAST]);
        m.extend(RTNH_F_ONLINK.to_ne_bytes());
        attribute(m, RTA_DST, &gateway.octets());
        attribute(m, RTA_GATEWAY, &gateway.octets());
        attribute(m, RTA_OIF, &index.to_ne_bytes());
    });
    Ok(())
}

/// `struct ndmsg`
fn neighbour_header(out: &mut Vec<u8>, family: u8, index: u32, flags: u8) {
    out.extend([family, 0, 0, 0]);
    out.extend(index.to_ne_bytes());
    out.extend(NUD_PERMANENT.to_ne_bytes());
    out.extend([flags, 0]);
}

fn message(out: &mut Vec<u8>, kind: u16, flags: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend((REQUEST | CREATE | EXCLUSIVE | flags).to_ne_bytes());
    out.extend([0; 8]);
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((value.len() as u16 + 4).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}
