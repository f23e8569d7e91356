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
    /// `mark`: a number of 32 bits in the machine's byte order, which therefore has
    /// no place in an interval.
    Mark,
}

impl Type {
    /// How `nft` calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4_addr",
            Self::Ipv6 => "ipv6_addr",
            Self::Protocol => "inet_proto",
            Self::Port => "inet_service",
            Self::Mark => "mark",
        }
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Ipv4 | Self::Mark => 4,
            Self::Ipv6 => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    /// The highest value.
    #[must_use]
    pub const fn highest(self) -> Value {
        match self {
            Self::Ipv4 => Value::Address(IpAddr::V4(Ipv4Addr::BROADCAST)),
            Self::Ipv6 => Value::Address(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))),
            Self::Protocol => Value::Protocol(u8::MAX),
            Self::Port => Value::Port(u16::MAX),
            Self::Mark => Value::Mark(u32::MAX),
        }
    }

    /// Reads a value as the kernel has it; none if the length is another one.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> Option<Value> {
        Some(match self {
            Self::Ipv4 => Value::Address(<[u8; 4]>::try_from(bytes).ok()?.into()),
            Self::Ipv6 => Value::Address(<[u8; 16]>::try_from(bytes).ok()?.into()),
            Self::Protocol => Value::Protocol(u8::from_be_bytes(bytes.try_into().ok()?)),
            Self::Port => Value::Port(u16::from_be_bytes(bytes.try_into().ok()?)),
            Self::Mark => Value::Mark(u32::from_ne_bytes(bytes.try_into().ok()?)),
        })
    }
}

/// A value of a [`Type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// [`Type::Ipv4`] or [`Type::Ipv6`]
    Address(IpAddr),
    /// [`Type::Protocol`]
    Protocol(u8),
    /// [`Type::Port`]
    Port(u16),
    /// [`Type::Mark`]
    Mark(u32),
}

impl Value {
    /// Appends the value as the kernel has it.
    pub fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(ip)) => bytes.extend(ip.octets()),
            Self::Address(IpAddr::V6(ip)) => bytes.extend(ip.octets()),
            Self::Protocol(number) => bytes.push(number),
            Self::Port(port) => bytes.extend(port.to_be_bytes()),
            Self::Mark(mark) => bytes.extend(mark.to_ne_bytes()),
        }
    }

    /// The value after this one; none after the highest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Some(match self {
            Self::Address(IpAddr::V4(ip)) => {
                Self::Address(Ipv4Addr::from_bits(ip.to_bits().checked_add(1)?).into())
            }
            Self::Address(IpAddr::V6(ip)) => {
                Self::Address(Ipv6Addr::from_bits(ip.to_bits().checked_add(1)?).into())
            }
            Self::Protocol(number) => Self::Protocol(number.checked_add(1)?),
            Self::Port(port) => Self::Port(port.checked_add(1)?),
            Self::Mark(mark) => Self::Mark(mark.checked_add(1)?),
        })
    }

    /// The value before this one; none before the lowest.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        Some(match self {
            Self::Address(IpAddr::V4(ip)) => {
                Self::Address(Ipv4Addr::from_bits(ip.to_bits().checked_sub(1)?).into())
            }
            Self::Address(IpAddr::V6(ip)) => {
                Self::Address(Ipv6Addr::from_bits(ip.to_bits().checked_sub(1)?).into())
            }
            Self::Protocol(number) => Self::Protocol(number.checked_sub(1)?),
            Self::Port(port) => Self::Port(port.checked_sub(1)?),
            Self::Mark(mark) => Self::Mark(mark.checked_sub(1)?),
        })
    }
}

impl fmt::Display for Value {
    /// As `nft` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => write!(f, "{ip}"),
            Self::Protocol(number) => write!(f, "{number}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Mark(mark) => write!(f, "{mark:#010x}"),
        }
    }
}
