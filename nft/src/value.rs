//! The values that keys and data of sets and maps are made of.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The type of a value. The name is that of `nft`, the length that of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `ipv4_addr`
    Ipv4,
    /// `ipv6_addr`
    Ipv6,
    /// `inet_proto`: the protocol's number.
    Protocol,
    /// `inet_service`: a port.
    Port,
    /// A port that destinations are translated to. For nft 1.0.6 it is that of TCP: the rule
    /// that translates says how it gets along with other protocols.
    NewPort,
    /// `classid`: a number of 32 bits in the machine's byte order. Rules carry it from one
    /// lookup to the next in `meta priority`.
    Class,
    /// The index of a slot, in the machine's byte order: what a rule draws at random.
    Index,
    /// `nf_proto`: the family of a packet, by its number.
    Family,
    /// `iface_index`: the index of a link, in the machine's byte order like a mark.
    Interface,
    /// The last 64 bits of an IPv6 source, as bytes without a type. Only packets write
    /// them: there are no values of it here.
    Ipv6Interface,
    /// The source of the IPv4 packet inside a VXLAN packet. For `nft` these are bytes
    /// without a type.
    InnerIpv4,
    /// The same of an IPv6 packet.
    InnerIpv6,
}

impl Type {
    /// An expression of it for `nft`, and the bytes of a value.
    ///
    /// The inner addresses stand behind the headers of UDP (8 bytes), VXLAN (8) and
    /// Ethernet (14), and at byte 12 or 8 of the inner packet: bits 336 and 304.
    const fn facts(self) -> (&'static str, usize) {
        match self {
            Self::Ipv4 => ("ip saddr", 4),
            Self::Ipv6 => ("ip6 saddr", 16),
            Self::Protocol => ("meta l4proto", 1),
            Self::Port => ("th dport", 2),
            Self::NewPort => ("tcp dport", 2),
            Self::Class => ("meta priority", 4),
            Self::Index => ("numgen random mod 2", 4),
            Self::Family => ("meta nfproto", 1),
            Self::Interface => ("iif", 4),
            Self::Ipv6Interface => ("@nh,128,64", 8),
            Self::InnerIpv4 => ("@th,336,32", 4),
            Self::InnerIpv6 => ("@th,304,128", 16),
        }
    }

    /// An expression that gives a value of it for a packet.
    #[must_use]
    pub const fn expression(self) -> &'static str {
        self.facts().0
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn size(self) -> usize {
        self.facts().1
    }

    /// The highest value: all its bits are set.
    #[must_use]
    pub fn highest(self) -> Option<Value> {
        self.read(&[u8::MAX; 16][..self.size()])
    }

    /// Reads a value of which every number has network byte order; none if the length is
    /// another one.
    #[must_use]
    pub fn read_from_network(self, bytes: &[u8]) -> Option<Value> {
        let number = || Some(u32::from_be_bytes(bytes.try_into().ok()?));
        Some(match self {
            Self::Class => Value::Class(number()?),
            Self::Index | Self::Interface => Value::Index(number()?),
            _ => self.read(bytes)?,
        })
    }

    /// Reads a value as the kernel has it; none if the length is another one.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> Option<Value> {
        Some(match self {
            Self::Ipv4 => Value::Address(<[u8; 4]>::try_from(bytes).ok()?.into()),
            Self::Ipv6 => Value::Address(<[u8; 16]>::try_from(bytes).ok()?.into()),
            Self::Protocol | Self::Family => {
                Value::Protocol(u8::from_be_bytes(bytes.try_into().ok()?))
            }
            Self::Port | Self::NewPort => Value::Port(u16::from_be_bytes(bytes.try_into().ok()?)),
            Self::Class => Value::Class(u32::from_ne_bytes(bytes.try_into().ok()?)),
            Self::Index | Self::Interface => {
                Value::Index(u32::from_ne_bytes(bytes.try_into().ok()?))
            }
            Self::Ipv6Interface => return None,
            Self::InnerIpv4 => Value::Inner(<[u8; 4]>::try_from(bytes).ok()?.into()),
            Self::InnerIpv6 => Value::Inner(<[u8; 16]>::try_from(bytes).ok()?.into()),
        })
    }
}

/// A value of a [`Type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// [`Type::Ipv4`] or [`Type::Ipv6`]
    Address(IpAddr),
    /// [`Type::Protocol`] or [`Type::Family`]
    Protocol(u8),
    /// [`Type::Port`] or [`Type::NewPort`]
    Port(u16),
    /// [`Type::Class`]
    Class(u32),
    /// [`Type::Index`] or [`Type::Interface`]
    Index(u32),
    /// [`Type::InnerIpv4`] or [`Type::InnerIpv6`]
    Inner(IpAddr),
}

impl Value {
    /// Appends the value as the kernel has it.
    pub fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(ip)) | Self::Inner(IpAddr::V4(ip)) => {
                bytes.extend(ip.octets());
            }
            Self::Address(IpAddr::V6(ip)) | Self::Inner(IpAddr::V6(ip)) => {
                bytes.extend(ip.octets());
            }
            Self::Protocol(number) => bytes.push(number),
            Self::Port(port) => bytes.extend(port.to_be_bytes()),
            Self::Class(number) | Self::Index(number) => {
                bytes.extend(number.to_ne_bytes());
            }
        }
    }

    /// The same with every number in network byte order.
    pub fn write_for_network(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Class(number) | Self::Index(number) => {
                bytes.extend(number.to_be_bytes());
            }
            _ => self.write(bytes),
        }
    }

    /// The value after this one; none after the highest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.step(1)
    }

    /// The value before this one; none before the lowest.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        self.step(-1)
    }

    fn step(self, by: i8) -> Option<Self> {
        Some(match self {
            Self::Address(ip) => Self::Address(step(ip, by)?),
            Self::Inner(ip) => Self::Inner(step(ip, by)?),
            Self::Protocol(number) => Self::Protocol(number.checked_add_signed(by)?),
            Self::Port(port) => Self::Port(port.checked_add_signed(by.into())?),
            Self::Class(number) => Self::Class(number.checked_add_signed(by.into())?),
            Self::Index(index) => Self::Index(index.checked_add_signed(by.into())?),
        })
    }
}

fn step(ip: IpAddr, by: i8) -> Option<IpAddr> {
    Some(match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().checked_add_signed(by.into())?).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().checked_add_signed(by.into())?).into(),
    })
}

impl fmt::Display for Value {
    /// As `nft` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => write!(f, "{ip}"),
            Self::Protocol(number) => write!(f, "{number}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Class(number) => write!(f, "{number:#010x}"),
            Self::Index(index) => write!(f, "{index}"),
            Self::Inner(IpAddr::V4(ip)) => write!(f, "{:#010x}", ip.to_bits()),
            Self::Inner(IpAddr::V6(ip)) => write!(f, "{:#034x}", ip.to_bits()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With bytes and not with what reads them, which could make the same mistake.
    #[test]
    fn a_value_has_the_order_of_the_network_or_of_the_machine() {
        let written = |value: Value| {
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            bytes
        };
        let address = |text: &str| Value::Address(text.parse().unwrap());
        assert_eq!(written(address("192.0.2.1")), [192, 0, 2, 1]);
        assert_eq!(
            written(address("2001:db8::1"))[..4],
            [0x20, 0x01, 0x0d, 0xb8]
        );
        assert_eq!(written(Value::Port(8472)), [0x21, 0x18]);
        let of_machine = if cfg!(target_endian = "big") {
            [1, 2, 3, 4]
        } else {
            [4, 3, 2, 1]
        };
        assert_eq!(written(Value::Class(0x0102_0304)), of_machine);
        assert_eq!(written(Value::Index(0x0102_0304)), of_machine);
        assert_eq!(
            Type::Class.read(&of_machine),
            Some(Value::Class(0x0102_0304))
        );
    }
}
