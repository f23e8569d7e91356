//! nfnetlink, nf_tables first of all: the same socket, monitor and requests as rtnetlink's,
//! with messages whose attributes stay bytes.
//!
//! [`attributes`] writes and reads attributes, [`object`] names those of tables,
//! chains, rules and sets and builds the requests for them, [`element`] names those of
//! elements, [`verdict`] is what a rule or an element of a verdict map decides. [`conntrack`]
//! is the table of connections, [`log`] receives the packets that rules log, [`idle`] keeps
//! sockets from being closed. A [`Transaction`] holds writes
//! that the kernel carries out all together or not at all
//! ([`Socket::commit`](crate::socket::Socket::commit)).
//!
//! Attributes are encoded here and not by the crate netlink-packet-netfilter: what
//! tweed needs of it, elements of sets, is shorter without its types, and the rules
//! of other programs have expressions that it does not know.

pub mod attributes;
pub mod conntrack;
pub mod element;
pub mod idle;
pub mod log;
pub mod object;
mod transaction;
pub mod verdict;

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_NETFILTER;

pub use attributes::Attributes;
pub use transaction::Transaction;

use crate::{monitor::Notify, protocol::Protocol};

/// `NFPROTO_UNSPEC`: every family.
pub const FAMILY_ANY: u8 = 0;
/// `NFPROTO_INET`: IPv4 and IPv6 in one table.
pub const FAMILY_INET: u8 = 1;
/// `NFPROTO_IPV4`.
pub const FAMILY_IPV4: u8 = 2;
/// `NFPROTO_IPV6`.
pub const FAMILY_IPV6: u8 = 10;

/// How `nft` calls a family.
pub fn family_word(family: u8) -> &'static str {
    match family {
        FAMILY_IPV4 => "ip",
        FAMILY_IPV6 => "ip6",
        _ => "inet",
    }
}

/// The program that shows the tables of iptables in a family.
pub fn iptables_word(family: u8) -> &'static str {
    match family {
        FAMILY_IPV6 => "ip6tables",
        _ => "iptables",
    }
}

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// Bytes of `struct nfgenmsg`: family, version, resource.
const HEADER: usize = 4;

/// The protocol nfnetlink; notifications are those of nf_tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfTables;

impl Protocol for NfTables {
    const NUMBER: isize = NETLINK_NETFILTER;
    const NAME: &'static str = "nfnetlink";
    type Message = Message;
}

/// A connection to a namespace's nf_tables and other subsystems of nfnetlink.
pub type Socket = crate::socket::Socket<NfTables>;
/// A request about an object of nfnetlink.
pub type Request = crate::request::Request<NfTables>;
/// Reads notifications about objects of nf_tables.
pub type Monitor = crate::monitor::Monitor<NfTables>;
/// Has a [`Monitor`] hear nothing for a while.
pub type Membership = crate::monitor::Membership<NfTables>;

/// A message of nfnetlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Subsystem and number of the message.
    kind: u16,
    /// `NFPROTO_…`.
    pub family: u8,
    /// The subsystem that a batch is for, or the group of a log; 0 in all other messages.
    resource: u16,
    /// The attributes as the kernel has them: [`attributes`] reads them.
    pub attributes: Attributes,
}

impl Message {
    /// A message of nf_tables: `number` is one of `NFT_MSG_…`.
    pub fn new(number: u8, family: u8, attributes: Attributes) -> Self {
        Self::of(SUBSYSTEM, number, family, attributes)
    }

    /// A message of another subsystem.
    fn of(subsystem: u16, number: u8, family: u8, attributes: Attributes) -> Self {
        Self {
            kind: subsystem << 8 | u16::from(number),
            family,
            resource: 0,
            attributes,
        }
    }

    /// Its number, `NFT_MSG_…`; none if it is not of nf_tables.
    pub fn number(&self) -> Option<u8> {
        self.number_of(SUBSYSTEM)
    }

    /// Its number; none if it is not of this subsystem.
    fn number_of(&self, of: u16) -> Option<u8> {
        let [subsystem, number] = self.kind.to_be_bytes();
        (u16::from(subsystem) == of).then_some(number)
    }

    /// The payload of the first attribute of this kind.
    pub fn attribute(&self, kind: u16) -> Option<&[u8]> {
        attributes::find(self.attributes.as_bytes(), kind)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_bytes().len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let [high, low] = self.resource.to_be_bytes();
        buffer[..HEADER].copy_from_slice(&[self.family, 0, high, low]);
        buffer[HEADER..].copy_from_slice(self.attributes.as_bytes());
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let ([family, _, high, low], attributes) = payload
            .split_first_chunk::<HEADER>()
            .ok_or("a message of nfnetlink is too short")?;
        Ok(Self {
            kind: header.message_type,
            family: *family,
            resource: u16::from_be_bytes([*high, *low]),
            attributes: attributes.to_vec().into(),
        })
    }
}

/// What a monitor of nf_tables receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// An object was made, changed or deleted.
    Changed {
        /// [`Socket::port`](crate::socket::Socket::port) of the socket that did it.
        port: u32,
        /// The object.
        message: Message,
    },
    /// Notifications were lost or cannot be read: look at everything again.
    Overflow,
}

impl Notify for NfTables {
    const GROUPS: &'static [u32] = &[7]; // NFNLGRP_NFTABLES
    /// The system's default: other programs replace whole rulesets, and to look
    /// again costs no more than to read of each rule.
    const BUFFER: usize = 104 * 1024;
    type Notification = Notification;

    fn lost() -> Notification {
        Notification::Overflow
    }

    fn read(port: u32, message: Option<Message>) -> Option<Notification> {
        let changed = |message| Notification::Changed { port, message };
        Some(message.map_or(Notification::Overflow, changed))
    }
}
