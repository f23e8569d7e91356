//! Packets as bytes, as a kernel makes them: pure.

use std::net::IpAddr;

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of the IPv4, UDP and VXLAN headers of an outer packet.
pub(crate) const OUTER: usize = 36;
/// IANA's numbers of protocols.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A packet of TCP or UDP.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    /// Destination and source of the Ethernet header.
    pub macs: ([u8; 6], [u8; 6]),
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Source and destination.
    pub ports: (u16, u16),
    pub protocol: u8,
    /// TTL or hop limit.
    pub hops: u8,
    pub payload: Vec<u8>,
}

impl Packet {
    /// One between these ends.
    pub(crate) fn new(source: (IpAddr, u16), destination: (IpAddr, u16), protocol: u8) -> Self {
        Self {
            macs: ([0; 6], [0; 6]),
            source: source.0,
            destination: destination.0,
            ports: (source.1, destination.1),
            protocol,
            hops: 64,
            payload: b"tweed".to_vec(),
        }
    }

    /// The same to another end.
    pub(crate) fn to(mut self, destination: (IpAddr, u16)) -> Self {
        self.destination = destination.0;
        self.ports.1 = destination.1;
        self
    }

    pub(crate) fn ends(&self) -> (IpAddr, IpAddr, (u16, u16)) {
        (self.source, self.destination, self.ports)
    }

    /// From the Ethernet header on.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut transport = self.transport();
        let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
        let ends: Vec<u8> = [self.source, self.destination]
            .iter()
            .flat_map(octets)
            .collect();
        let pseudo = [&ends[..], &length.to_be_bytes(), &[0, self.protocol]].concat();
        let sum = checksum(&[&pseudo[..], &transport[..]].concat());
        let at = if self.protocol == TCP { 16 } else { 6 };
        transport.splice(at..at + 2, sum.to_be_bytes());
        let (kind, header) = match self.source {
            IpAddr::V4(_) => {
                let total = (length + 20).to_be_bytes();
                let start = [
                    0x45,
                    0,
                    total[0],
                    total[1],
                    0,
                    1,
                    0x40,
                    0,
                    self.hops,
                    self.protocol,
                ];
                let mut header = [&start[..], &[0, 0], &ends].concat();
                let sum = checksum(&header);
                header.splice(10..12, sum.to_be_bytes());
                ([8, 0], header)
            }
            IpAddr::V6(_) => {
                let [high, low] = length.to_be_bytes();
                let start = [0x60, 0, 0, 0, high, low, self.protocol, self.hops];
                ([0x86, 0xdd], [&start[..], &ends].concat())
            }
        };
        [&self.macs.0[..], &self.macs.1, &kind, &header, &transport].concat()
    }

    /// The header without its checksum, and what is in the packet.
    fn transport(&self) -> Vec<u8> {
        let ports = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        let rest: Vec<u8> = if self.protocol == TCP {
            // Numbers, 20 bytes of header, ACK and PSH, a window.
            vec![0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]
        } else {
            let length = u16::try_from(self.payload.len() + 8).unwrap_or(u16::MAX);
            [length.to_be_bytes(), [0, 0]].concat()
        };
        [&ports[..], &rest, &self.payload].concat()
    }
}

fn octets(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => u32::from(pair[0]) << 8,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Whether a packet begins with the outer header of VXLAN between these nodes.
pub(crate) fn is_outer(packet: &[u8], from: [u8; 4], to: [u8; 4], port: u16, vni: u32) -> bool {
    let (Some(ip), Some(rest)) = (
        packet.get(ETHERNET..ETHERNET + 20),
        packet.get(ETHERNET + 20..ETHERNET + OUTER),
    ) else {
        return false;
    };
    let total = u16::try_from(packet.len() - ETHERNET).unwrap_or(0);
    let vni = (vni << 8).to_be_bytes();
    packet.get(12..ETHERNET) == Some(&[8, 0])
        && ip[..4] == [&[0x45, 0][..], &total.to_be_bytes()].concat()[..]
        // No fragment, 64 hops, UDP, and a checksum that makes up for all.
        && ip[6..10] == [0, 0, 64, UDP]
        && checksum(ip) == 0
        && ip[12..] == [from, to].concat()[..]
        && rest[2..4] == port.to_be_bytes()
        && rest[4..6] == (total - 20).to_be_bytes()
        && rest[6..] == [&[0, 0, 8, 0, 0, 0][..], &vni].concat()[..]
}
