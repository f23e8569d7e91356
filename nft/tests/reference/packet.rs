//! First packets of flows as bytes, and what can be told from packets that come out again:
//! each carries a number where no translation of addresses changes it.

use std::net::{IpAddr, SocketAddr};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;
pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;

/// Begins the payload of our datagrams.
const MAGIC: [u8; 4] = *b"twee";

const SYN: u8 = 0x02;
const RST: u8 = 0x04;

/// The ends of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// The content of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// It is the first packet of a flow, with this number.
    First(u32, Ends),
    /// The flow of this number was refused.
    Refused(u32),
}

/// The first packet of a flow.
pub fn first(ends: &Ends, number: u32) -> Vec<u8> {
    let ports = [ends.source.port(), ends.destination.port()];
    let mut body: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    match ends.protocol {
        TCP => {
            body.extend(number.to_be_bytes());
            body.extend([0, 0, 0, 0, 5 << 4, SYN, 0xff, 0xff, 0, 0, 0, 0]);
        }
        UDP => {
            body.extend([0, 16, 0, 0]);
            body.extend(MAGIC);
            body.extend(number.to_be_bytes());
        }
        SCTP => {
            // A verification tag of 0, the checksum, and a chunk INIT.
            body.extend([0; 8]);
            body.extend([1, 0, 0, 20]);
            body.extend(number.to_be_bytes());
            body.extend([0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 1]);
            let sum = crc32c(&body);
            body[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        other => panic!("protocol {other}"),
    }
    if ends.protocol != SCTP {
        let at = if ends.protocol == TCP { 16 } else { 6 };
        let mut pseudo = addresses(ends);
        pseudo.extend((body.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, ends.protocol]);
        pseudo.extend(&body);
        let sum = checksum(&pseudo);
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let mut packet = header(ends, body.len());
    packet.extend(body);
    packet
}

fn addresses(ends: &Ends) -> Vec<u8> {
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            [source.octets(), destination.octets()].concat()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            [source.octets(), destination.octets()].concat()
        }
        _ => panic!("{ends:?}"),
    }
}

fn header(ends: &Ends, length: usize) -> Vec<u8> {
    let mut header = match ends.source {
        SocketAddr::V4(_) => {
            let [high, low] = ((20 + length) as u16).to_be_bytes();
            vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, ends.protocol, 0, 0]
        }
        SocketAddr::V6(_) => {
            let [high, low] = (length as u16).to_be_bytes();
            vec![0x60, 0, 0, 0, high, low, ends.protocol, 64]
        }
    };
    header.extend(addresses(ends));
    if ends.source.is_ipv4() {
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    header
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// RFC 3309.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

/// What a packet with its IP header says, if it has to do with ours.
pub fn parse(packet: &[u8]) -> Option<Content> {
    let (protocol, source, destination, body) = match packet.first()? >> 4 {
        4 => (
            *packet.get(9)?,
            IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).unwrap()),
            IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).unwrap()),
            packet.get(usize::from(packet[0] & 15) * 4..)?,
        ),
        6 => (
            *packet.get(6)?,
            IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).unwrap()),
            IpAddr::from(<[u8; 16]>::try_from(packet.get(24..40)?).unwrap()),
            packet.get(40..)?,
        ),
        _ => return None,
    };
    body_content(protocol, source, destination, body)
}

/// The same for what follows the IP header.
pub fn body_content(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    body: &[u8],
) -> Option<Content> {
    let number = |at: usize| {
        Some(u32::from_be_bytes(
            body.get(at..at + 4)?.try_into().unwrap(),
        ))
    };
    let port = |at: usize| {
        Some(u16::from_be_bytes(
            body.get(at..at + 2)?.try_into().unwrap(),
        ))
    };
    let first = |number| {
        Some(Content::First(
            number,
            Ends {
                protocol,
                source: SocketAddr::new(source, port(0)?),
                destination: SocketAddr::new(destination, port(2)?),
            },
        ))
    };
    match protocol {
        // The flags of what is quoted in an ICMP message may be cut off.
        TCP if body.get(13).is_some_and(|flags| flags & RST != 0) => {
            Some(Content::Refused(number(8)?.wrapping_sub(1)))
        }
        TCP if body.get(13).is_none_or(|flags| flags & 0x3f == SYN) => first(number(4)?),
        UDP if body.get(8..12)? == MAGIC => first(number(12)?),
        SCTP if body.get(12) == Some(&1) => first(number(16)?),
        ICMP | ICMPV6 => {
            let unreachable = if protocol == ICMP { 3 } else { 1 };
            match parse(body.get(8..)?)? {
                Content::First(number, _) if body[0] == unreachable => {
                    Some(Content::Refused(number))
                }
                _ => None,
            }
        }
        _ => None,
    }
}
