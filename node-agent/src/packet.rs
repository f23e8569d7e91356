//! The headers of a packet: who sends it to whom. Pure; whatever the bytes are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tweed_component::explain::protocol_name;

/// The numbers of protocols (IANA, Assigned Internet Protocol Numbers).
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;
/// ICMP of IPv4.
pub const ICMP: u8 = 1;
/// ICMP of IPv6.
pub const ICMPV6: u8 = 58;

/// Extension headers of IPv6 that may come before the protocol: hop-by-hop options,
/// routing, fragment, authentication, destination options.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const EXTENSIONS: [u8; 5] = [
    HOP_BY_HOP,
    ROUTING,
    FRAGMENT,
    AUTHENTICATION,
    DESTINATION_OPTIONS,
];
/// Maximum number of extension headers that are looked at. More than two or three are
/// in no packet that people want to see.
const MAX_EXTENSIONS: usize = 8;

/// What distinguishes the flow of a packet from others between the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Source and destination port.
    Ports(u16, u16),
    /// Type and code.
    Icmp(u8, u8),
    /// A protocol without ports, a later fragment, or a packet that was cut off.
    None,
}

/// The headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// The number of its protocol.
    pub protocol: u8,
    /// Its ports, or what it has instead.
    pub detail: Detail,
}

impl Headers {
    /// Reads a packet from its IP header on. None if it is neither IPv4 nor IPv6, or
    /// ends before its addresses do.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_ipv4(packet),
            6 => Self::parse_ipv6(packet),
            _ => None,
        }
    }

    /// RFC 791, section 3.1.
    fn parse_ipv4(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let length = usize::from(header[0] & 0x0f) * 4;
        if length < header.len() {
            return None;
        }
        let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let is_later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
        let protocol = header[9];
        let content = if is_later_fragment {
            None
        } else {
            packet.get(length..)
        };
        Some(Self {
            source: address(12)?.into(),
            destination: address(16)?.into(),
            protocol,
            detail: Detail::parse(protocol, content.unwrap_or_default()),
        })
    }

    /// RFC 8200, sections 3 and 4.
    fn parse_ipv6(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<40>()?;
        let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
        let (protocol, content) = skip_extensions(header[6], packet.get(40..)?);
        Some(Self {
            source: address(8)?.into(),
            destination: address(24)?.into(),
            protocol,
            detail: Detail::parse(protocol, content),
        })
    }

    /// The headers that a packet in the other direction of the flow has.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            detail: match self.detail {
                Detail::Ports(source, destination) => Detail::Ports(destination, source),
                other => other,
            },
        }
    }

    /// The destination port; none of a protocol without ports.
    pub fn port(&self) -> Option<u16> {
        match self.detail {
            Detail::Ports(_, destination) => Some(destination),
            _ => None,
        }
    }
}

impl Detail {
    /// TCP, UDP and SCTP all begin with the two ports, ICMP with type and code.
    fn parse(protocol: u8, content: &[u8]) -> Self {
        match (protocol, content) {
            (TCP | UDP | SCTP, [a, b, c, d, ..]) => {
                Self::Ports(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
            }
            (ICMP | ICMPV6, [kind, code, ..]) => Self::Icmp(*kind, *code),
            _ => Self::None,
        }
    }
}

/// The protocol after the extension headers, and its content; none of a later fragment.
fn skip_extensions(mut next: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&next) {
            return (next, rest);
        }
        let Some([following, length, high, low]) = rest.first_chunk::<4>().copied() else {
            return (next, &[]);
        };
        let size = match next {
            FRAGMENT if u16::from_be_bytes([high, low]) & 0xfff8 != 0 => return (following, &[]),
            FRAGMENT => 8,
            AUTHENTICATION => 4 * (usize::from(length) + 2),
            _ => 8 * (usize::from(length) + 1),
        };
        next = following;
        rest = rest.get(size..).unwrap_or_default();
    }
    (next, &[])
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        let protocol = protocol_name(self.protocol);
        match self.detail {
            Detail::Ports(from, to) => {
                let from = SocketAddr::new(source, from);
                let to = SocketAddr::new(destination, to);
                write!(f, "{from} > {to} {protocol}")
            }
            Detail::Icmp(kind, code) => {
                write!(
                    f,
                    "{source} > {destination} {protocol} type {kind} code {code}"
                )
            }
            Detail::None => write!(f, "{source} > {destination} {protocol}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ipv4(protocol: u8, options: usize, fragment: u16, content: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x40 | u8::try_from(5 + options / 4).unwrap();
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        packet.extend(content);
        packet
    }

    fn ipv6(next: u8, content: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next;
        packet[8..10].copy_from_slice(&[0xfd, 0]);
        packet[23] = 1;
        packet[24..26].copy_from_slice(&[0xfd, 0]);
        packet[39] = 2;
        packet.extend(content);
        packet
    }

    fn shown(packet: &[u8]) -> String {
        Headers::parse(packet).unwrap().to_string()
    }

    const PORTS: [u8; 8] = [0x12, 0x34, 0, 80, 1, 2, 3, 4];

    #[test]
    fn protocols_are_shown_with_what_they_have() {
        for (protocol, name) in [(TCP, "TCP"), (UDP, "UDP"), (SCTP, "SCTP")] {
            let expected = format!("10.0.0.1:4660 > 10.0.0.2:80 {name}");
            assert_eq!(shown(&ipv4(protocol, 0, 0, &PORTS)), expected);
            assert_eq!(shown(&ipv4(protocol, 40, 0, &PORTS)), expected);
            let expected = format!("[fd00::1]:4660 > [fd00::2]:80 {name}");
            assert_eq!(shown(&ipv6(protocol, &PORTS)), expected);
        }
        let unreachable = ipv4(ICMP, 0, 0, &[3, 4]);
        assert_eq!(
            shown(&unreachable),
            "10.0.0.1 > 10.0.0.2 ICMP type 3 code 4"
        );
        let ping = ipv6(ICMPV6, &[128, 0]);
        assert_eq!(shown(&ping), "fd00::1 > fd00::2 ICMPv6 type 128 code 0");
        assert_eq!(
            shown(&ipv4(50, 0, 0, &[])),
            "10.0.0.1 > 10.0.0.2 protocol 50"
        );
    }

    #[test]
    fn a_later_fragment_and_a_packet_that_is_cut_off_have_no_ports() {
        let none = "10.0.0.1 > 10.0.0.2 UDP";
        assert_eq!(shown(&ipv4(UDP, 0, 185, &PORTS)), none);
        assert_eq!(shown(&ipv4(UDP, 0, 0, &PORTS[..3])), none);
        // The first fragment, with "more fragments" set, has them.
        assert!(shown(&ipv4(UDP, 0, 0x2000, &PORTS)).contains(":80"));
        let fragment = |offset: u16| {
            let [high, low] = (offset << 3 | 1).to_be_bytes();
            let mut content = vec![UDP, 0, high, low, 0, 0, 0, 0];
            content.extend(PORTS);
            shown(&ipv6(FRAGMENT, &content))
        };
        assert_eq!(fragment(0), "[fd00::1]:4660 > [fd00::2]:80 UDP");
        assert_eq!(fragment(7), "fd00::1 > fd00::2 UDP");
    }

    #[test]
    fn extension_headers_are_skipped_up_to_a_number() {
        let mut content = [DESTINATION_OPTIONS, 1].to_vec();
        content.resize(16, 0);
        content.extend([AUTHENTICATION, 0, 0, 0, 0, 0, 0, 0]);
        content.extend([TCP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        content.extend(PORTS);
        assert!(shown(&ipv6(HOP_BY_HOP, &content)).ends_with(":80 TCP"));
        let endless = [HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0].repeat(1000);
        assert_eq!(
            shown(&ipv6(HOP_BY_HOP, &endless)),
            "fd00::1 > fd00::2 protocol 0"
        );
    }

    #[test]
    fn what_is_no_packet_is_none() {
        for bytes in [&[][..], &[0x45; 19], &[0x60; 39], &[0x44; 60], &[0x75; 60]] {
            assert_eq!(Headers::parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic_and_reversed_twice_are_the_same(
            first in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..140),
        ) {
            let packet = [&[first], &rest[..]].concat();
            if let Some(headers) = Headers::parse(&packet) {
                prop_assert_eq!(headers.reversed().reversed(), headers);
                prop_assert_eq!(headers.source.is_ipv4(), headers.destination.is_ipv4());
                let _ = headers.to_string();
            }
        }
    }
}
