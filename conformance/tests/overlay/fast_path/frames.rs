//! Packets as bytes: made by hand, and read from captures.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, socket,
};
use tweed_lab::{LabError, Netns};

use crate::packets::{checksum, failed, send_ipv4};

/// A packet of a flow.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Of UDP or TCP.
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    /// Flags and offset.
    pub fragment: u16,
    pub options: Vec<u8>,
    /// Bytes beside the mark.
    pub padding: usize,
    pub has_checksum: bool,
}

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
pub const DF: u16 = 0x4000;
/// What each packet made here has in it.
const MARK: &[u8] = b"hand-made";

impl Probe {
    pub fn new(protocol: u8) -> Self {
        Self {
            protocol,
            tos: 0,
            ttl: 64,
            fragment: DF,
            options: Vec::new(),
            padding: 11,
            has_checksum: true,
        }
    }

    /// Its bytes from the IP header on. The number is that of the header.
    pub fn bytes(&self, number: u16, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => self.ipv4(number, from, to),
            (SocketAddr::V6(from), SocketAddr::V6(to)) => self.ipv6(number, from, to),
            _ => panic!("{from} and {to} are of two families"),
        }
    }

    /// What follows on the IP header. The ends are as a checksum has them.
    fn payload(&self, ports: [u16; 2], ends: &[u8]) -> Vec<u8> {
        let mut data = MARK.to_vec();
        data.resize(MARK.len() + self.padding, 0x2e);
        let port_bytes = ports.map(u16::to_be_bytes).concat();
        let header: Vec<u8> = if self.protocol == UDP {
            let length = u16::try_from(8 + data.len()).unwrap();
            [port_bytes, length.to_be_bytes().to_vec(), vec![0, 0]].concat()
        } else {
            // Sequence, acknowledged, five words, ACK and PSH, window.
            let rest = [0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
            [port_bytes, rest.to_vec()].concat()
        };
        let mut payload = [header, data].concat();
        if self.has_checksum {
            let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
            let pseudo = [ends, &[0, self.protocol], &length, &payload].concat();
            let at = if self.protocol == UDP { 6 } else { 16 };
            payload[at..at + 2].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        }
        payload
    }

    fn ipv4(&self, number: u16, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
        let ends = [from.ip().octets(), to.ip().octets()].concat();
        let payload = self.payload([from.port(), to.port()], &ends);
        let words = u8::try_from(5 + self.options.len() / 4).unwrap();
        let total = usize::from(words) * 4 + payload.len();
        let mut packet = vec![0x40 | words, self.tos];
        packet.extend(u16::try_from(total).unwrap().to_be_bytes());
        packet.extend(number.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.protocol, 0, 0]);
        packet.extend(ends);
        packet.extend(&self.options);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }

    /// Its options are those of a header for the destination, and a part of it has a header
    /// of fragments.
    fn ipv6(&self, number: u16, from: SocketAddrV6, to: SocketAddrV6) -> Vec<u8> {
        let ends = [from.ip().octets(), to.ip().octets()].concat();
        let mut next = self.protocol;
        let mut payload = self.payload([from.port(), to.port()], &ends);
        let part = self.fragment & 0x3fff;
        if part != 0 {
            let place = (part & 0x1fff) << 3 | part >> 13;
            let header = [[next, 0], place.to_be_bytes(), [0, 0], number.to_be_bytes()];
            payload = [header.concat(), payload].concat();
            next = 44;
        }
        if !self.options.is_empty() {
            payload = [vec![next, 0, 1, 4, 0, 0, 0, 0], payload].concat();
            next = 60;
        }
        let mut packet = vec![0x60 | self.tos >> 4, self.tos << 4 | 1];
        packet.extend(number.to_be_bytes());
        packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        packet.extend([next, self.ttl]);
        packet.extend(ends);
        packet.extend(payload);
        packet
    }

    /// Sends it from a namespace.
    pub fn send(
        &self,
        netns: &Netns,
        number: u16,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<(), LabError> {
        send_packet(netns, &self.bytes(number, from, to))
    }
}

/// Sends a complete packet from a namespace, as root in a pod can.
pub fn send_packet(netns: &Netns, packet: &[u8]) -> Result<(), LabError> {
    if packet[0] >> 4 == 4 {
        return send_ipv4(netns, packet);
    }
    let to: [u8; 16] = packet[24..40].try_into().unwrap();
    let to = Ipv6Addr::from(to);
    let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
    let sent = netns.enter(|| {
        let (family, kind) = (AddressFamily::Inet6, SockType::Raw);
        let raw = socket(family, kind, SockFlag::empty(), SockProtocol::Raw)?;
        sendto(raw.as_raw_fd(), packet, &to, MsgFlags::empty())
    })?;
    sent.map(drop)
        .map_err(|errno| failed("send", netns, errno.into()))
}

/// The number of a frame that was made here.
pub fn number_of(frame: &[u8]) -> u16 {
    let at = if frame[12..14] == [0x86, 0xdd] {
        16
    } else {
        18
    };
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The frames in what `tcpdump -xx` has printed.
pub fn frames(lines: &[String]) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        let Some((offset, bytes)) = line.trim().split_once(':') else {
            continue;
        };
        if !line.starts_with('\t') || !offset.starts_with("0x") {
            continue;
        }
        if offset == "0x0000" {
            frames.push(Vec::new());
        }
        let digits: Vec<u8> = bytes.bytes().filter(u8::is_ascii_hexdigit).collect();
        let bytes = digits.chunks(2).map(|two| {
            let text = String::from_utf8_lossy(two);
            u8::from_str_radix(&text, 16).unwrap()
        });
        frames.last_mut().unwrap().extend(bytes);
    }
    frames
}

/// Those that have been made here, or are told to be about such a one.
pub fn hand_made(lines: &[String]) -> Vec<Vec<u8>> {
    let mut all = frames(lines);
    let has_mark = |frame: &Vec<u8>| frame.windows(MARK.len()).any(|part| part == MARK);
    all.retain(has_mark);
    all
}

/// A frame without what differs each time: the number of its IPv4 header, with its sum, and
/// that of parts of IPv6 packets; and of VXLAN without its checksum, which the kernel makes
/// and the fast path does not (RFC 7348, 5, says that it should be none). Panics if a sum
/// is wrong.
pub fn comparable(mut frame: Vec<u8>, is_forwarded: bool) -> Vec<u8> {
    const VXLAN: usize = 50;
    let mut start = 14;
    if !is_forwarded && frame[12..14] == [0x08, 0x00] {
        let header = 14..14 + usize::from(frame[14] & 0xf) * 4;
        assert_eq!(checksum(&frame[header]), 0, "the sum of {frame:02x?}");
        frame[18..20].fill(0);
        frame[24..26].fill(0);
        if frame[23] == UDP && frame[36..38] == 8472_u16.to_be_bytes() {
            frame[40..42].fill(0);
            start += VXLAN;
        }
    }
    if frame[start - 2..start] == [0x86, 0xdd] && frame[start + 6] == 44 {
        frame[start + 44..start + 48].fill(0);
    }
    frame
}

/// Sends a whole frame by a link of a namespace.
pub fn send_frame(netns: &Netns, link: &str, frame: &[u8]) -> Result<(), LabError> {
    let sent = netns.enter(|| {
        let mut links = getifaddrs()?;
        let found = links.find_map(|one| {
            let address = one.address.filter(|_| one.interface_name == link)?;
            address.as_link_addr().copied()
        });
        let to = found.ok_or(nix::Error::ENODEV)?;
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let raw = socket(family, kind, SockFlag::empty(), None)?;
        sendto(raw.as_raw_fd(), frame, &to, MsgFlags::empty())
    })?;
    sent.map(drop)
        .map_err(|errno| failed("send", netns, errno.into()))
}
