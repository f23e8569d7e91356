//! An entry of the table of connections: how it is read, and named in a request.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::attributes::{Attributes, find, number};
use super::{super::Message, NEW, SUBSYSTEM, family_number};
use tweed_core::family::{Family, octets};

// enum ctattr_type
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
/// `CTA_MARK`.
pub(super) const MARK: u16 = 8;
/// `CTA_ID`.
pub(super) const ID: u16 = 12;
const ZONE: u16 = 18;
/// `CTA_MARK_MASK`.
pub(super) const MARK_MASK: u16 = 21;
const FILTER: u16 = 25;
/// `CTA_STATUS_MASK`.
const STATUS_MASK: u16 = 26;
// enum ctattr_filter
/// `CTA_FILTER_ORIG_FLAGS`: what of the tuple in the request is compared.
const FILTER_ORIGINAL: u16 = 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM`, of `net/netfilter/nf_internals.h`.
const COMPARE_PROTOCOL: u32 = 1 << 3;
/// `IPS_SEEN_REPLY`: a packet has come in the other direction.
const SEEN_REPLY: u32 = 1 << 1;
// enum ctattr_tuple
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
// enum ctattr_ip
const V4_SOURCE: u16 = 1;
const V4_DESTINATION: u16 = 2;
const V6_SOURCE: u16 = 3;
const V6_DESTINATION: u16 = 4;
// enum ctattr_l4proto
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// `CTA_PROTO_ICMP_ID`, followed by type and code.
const ICMP: u16 = 4;
/// `CTA_PROTO_ICMPV6_ID`, followed by type and code.
const ICMPV6: u16 = 7;

/// The attributes of a dump of the entries whose packets have, as they come, this
/// protocol.
pub(super) fn with_protocol(protocol: u8) -> Attributes {
    let tuple = Attributes::new().nested(
        TUPLE_PROTOCOL,
        &Attributes::new().bytes(PROTOCOL_NUMBER, &[protocol]),
    );
    // In the order of the machine, other than all numbers beside it.
    let filter = Attributes::new().bytes(FILTER_ORIGINAL, &COMPARE_PROTOCOL.to_ne_bytes());
    Attributes::new()
        .nested(TUPLE_ORIGINAL, &tuple)
        .nested(FILTER, &filter)
}

/// Has a dump select entries that nobody has answered. Kernels before 5.17 ignore that.
pub(super) fn unanswered(dump: Attributes) -> Attributes {
    dump.number(STATUS, 0).number(STATUS_MASK, SEEN_REPLY)
}

/// What an entry has beside addresses and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// A protocol that the kernel knows no ports of.
    None,
    /// Source and destination port (of GRE: its keys).
    Pair(u16, u16),
    /// An ICMP question or its answer.
    Icmp {
        /// Its identifier.
        id: u16,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// The packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Their source address.
    pub source: IpAddr,
    /// Their destination address, of the same family.
    pub destination: IpAddr,
    /// The number of their protocol.
    pub protocol: u8,
    /// Their ports.
    pub ports: Ports,
    /// The zone of this direction alone, if the entry has one.
    pub zone: Option<u16>,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Packets as they came, before any rewriting.
    pub original: Tuple,
    /// Packets of the answer as they come, before they are rewritten back.
    pub reply: Tuple,
    /// The zone of both directions; 0 is the default.
    pub zone: u16,
    /// `ct mark`.
    pub mark: u32,
    /// `IPS_…` of `linux/netfilter/nf_conntrack_common.h`.
    pub status: u32,
    /// What distinguishes it from a later entry of the same tuples.
    pub id: u32,
}

impl Entry {
    /// Reads a message of a dump or of an event; none if it is no whole entry.
    pub fn read(message: &Message) -> Option<Self> {
        if message.number_of(SUBSYSTEM) != Some(NEW) {
            return None;
        }
        // What is missing is 0: the kernel leaves it out.
        let value = |kind| message.attribute(kind).map_or(Some(0), number);
        Some(Self {
            original: Tuple::read(message.attribute(TUPLE_ORIGINAL)?)?,
            reply: Tuple::read(message.attribute(TUPLE_REPLY)?)?,
            zone: message.attribute(ZONE).map_or(Some(0), short)?,
            mark: value(MARK)?,
            status: value(STATUS)?,
            id: value(ID)?,
        })
    }

    /// The tuple, the zone and the ID by which a request names an entry.
    pub fn named_by(message: &Message) -> Option<(Tuple, u16, u32)> {
        Some((
            Tuple::read(message.attribute(TUPLE_ORIGINAL)?)?,
            message.attribute(ZONE).map_or(Some(0), short)?,
            message.attribute(ID).map_or(Some(0), number)?,
        ))
    }

    /// Whether an answer has come.
    pub fn is_answered(&self) -> bool {
        self.status & SEEN_REPLY != 0
    }

    /// `NFPROTO_…`.
    pub(super) fn family(&self) -> u8 {
        family_number(Family::of(self.original.source))
    }

    /// The attributes by which the kernel finds it.
    pub(super) fn key(&self) -> Attributes {
        let key = Attributes::new().nested(TUPLE_ORIGINAL, &self.original.write());
        match self.zone {
            0 => key,
            zone => key.bytes(ZONE, &zone.to_be_bytes()),
        }
    }
}

impl Tuple {
    fn read(bytes: &[u8]) -> Option<Self> {
        let addresses = find(bytes, TUPLE_ADDRESSES)?;
        let (source, destination) = match find(addresses, V4_SOURCE) {
            Some(source) => (
                ipv4(source)?.into(),
                ipv4(find(addresses, V4_DESTINATION)?)?.into(),
            ),
            None => (
                ipv6(find(addresses, V6_SOURCE)?)?.into(),
                ipv6(find(addresses, V6_DESTINATION)?)?.into(),
            ),
        };
        let protocol = find(bytes, TUPLE_PROTOCOL)?;
        Some(Self {
            source,
            destination,
            protocol: *find(protocol, PROTOCOL_NUMBER)?.first()?,
            ports: read_ports(protocol)?,
            zone: match find(bytes, TUPLE_ZONE) {
                Some(zone) => Some(short(zone)?),
                None => None,
            },
        })
    }

    fn write(&self) -> Attributes {
        let (source, destination, icmp) = match self.source {
            IpAddr::V4(_) => (V4_SOURCE, V4_DESTINATION, ICMP),
            IpAddr::V6(_) => (V6_SOURCE, V6_DESTINATION, ICMPV6),
        };
        let addresses = Attributes::new()
            .bytes(source, &octets(self.source))
            .bytes(destination, &octets(self.destination));
        let protocol = Attributes::new().bytes(PROTOCOL_NUMBER, &[self.protocol]);
        let protocol = match self.ports {
            Ports::None => protocol,
            Ports::Pair(source, destination) => protocol
                .bytes(SOURCE_PORT, &source.to_be_bytes())
                .bytes(DESTINATION_PORT, &destination.to_be_bytes()),
            Ports::Icmp { id, kind, code } => protocol
                .bytes(icmp, &id.to_be_bytes())
                .bytes(icmp + 1, &[kind])
                .bytes(icmp + 2, &[code]),
        };
        let tuple = Attributes::new()
            .nested(TUPLE_ADDRESSES, &addresses)
            .nested(TUPLE_PROTOCOL, &protocol);
        match self.zone {
            None => tuple,
            Some(zone) => tuple.bytes(TUPLE_ZONE, &zone.to_be_bytes()),
        }
    }
}

fn read_ports(protocol: &[u8]) -> Option<Ports> {
    if let Some(source) = find(protocol, SOURCE_PORT) {
        let destination = find(protocol, DESTINATION_PORT)?;
        return Some(Ports::Pair(short(source)?, short(destination)?));
    }
    for first in [ICMP, ICMPV6] {
        if let Some(id) = find(protocol, first) {
            return Some(Ports::Icmp {
                id: short(id)?,
                kind: *find(protocol, first + 1)?.first()?,
                code: *find(protocol, first + 2)?.first()?,
            });
        }
    }
    Some(Ports::None)
}

fn short(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    Some(bytes.first_chunk::<4>().copied()?.into())
}

fn ipv6(bytes: &[u8]) -> Option<Ipv6Addr> {
    Some(bytes.first_chunk::<16>().copied()?.into())
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt(f)?;
        match self.zone {
            0 => Ok(()),
            zone => write!(f, " in zone {zone}"),
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            destination,
            protocol,
            ..
        } = *self;
        match self.ports {
            Ports::Pair(from, to) => {
                let (from, to) = (
                    SocketAddr::new(source, from),
                    SocketAddr::new(destination, to),
                );
                write!(f, "{from} > {to} protocol {protocol}")
            }
            Ports::Icmp { id, kind, code } => write!(
                f,
                "{source} > {destination} ICMP type {kind} code {code} id {id}"
            ),
            Ports::None => write!(f, "{source} > {destination} protocol {protocol}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tuples() -> impl Strategy<Value = Tuple> {
        let addresses = prop_oneof![
            any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
            any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
        ];
        let ports = prop_oneof![
            Just(Ports::None),
            any::<(u16, u16)>().prop_map(|(from, to)| Ports::Pair(from, to)),
            any::<(u16, u8, u8)>().prop_map(|(id, kind, code)| Ports::Icmp { id, kind, code }),
        ];
        (addresses, any::<u8>(), ports, any::<Option<u16>>()).prop_map(
            |((source, destination), protocol, ports, zone)| Tuple {
                source,
                destination,
                protocol,
                ports,
                zone,
            },
        )
    }

    proptest! {
        #[test]
        fn an_entry_is_named_by_what_was_read(tuple in tuples(), zone: u16, cut in 0..100usize) {
            let whole = Attributes::new()
                .nested(TUPLE_ORIGINAL, &tuple.write())
                .nested(TUPLE_REPLY, &tuple.write())
                .bytes(ZONE, &zone.to_be_bytes())
                .number(MARK, 7);
            let entry = Entry::read(&Message::of(SUBSYSTEM, NEW, 2, whole.clone())).unwrap();
            prop_assert_eq!((entry.original, entry.zone, entry.mark), (tuple, zone, 7));
            prop_assert_eq!((entry.id, entry.status), (0, 0));
            let key = entry.key();
            let written = find(key.as_bytes(), TUPLE_ORIGINAL).and_then(Tuple::read);
            prop_assert_eq!(written, Some(tuple));
            let bytes = whole.as_bytes();
            let cut = bytes[..cut.min(bytes.len())].to_vec();
            let _ = Entry::read(&Message::of(SUBSYSTEM, NEW, 2, cut.into()));
        }
    }

    #[test]
    fn an_entry_is_shown_as_people_write_connections() {
        let tuple = |source: &str, destination: &str, protocol, ports| Tuple {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            ports,
            zone: None,
        };
        let shown = |original, zone| {
            let entry = Entry {
                original,
                reply: original,
                zone,
                mark: 0,
                status: 0,
                id: 0,
            };
            entry.to_string()
        };
        let tcp = tuple("10.0.0.1", "10.0.0.2", 6, Ports::Pair(1024, 80));
        assert_eq!(shown(tcp, 0), "10.0.0.1:1024 > 10.0.0.2:80 protocol 6");
        let kind = Ports::Icmp {
            id: 9,
            kind: 128,
            code: 0,
        };
        assert_eq!(
            shown(tuple("fd00::1", "fd00::2", 58, kind), 3),
            "fd00::1 > fd00::2 ICMP type 128 code 0 id 9 in zone 3"
        );
        let esp = tuple("10.0.0.1", "10.0.0.2", 50, Ports::None);
        assert_eq!(shown(esp, 0), "10.0.0.1 > 10.0.0.2 protocol 50");
    }
}
