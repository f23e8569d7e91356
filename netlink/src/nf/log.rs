//! Packets that rules with `log group N` hand over (nfnetlink_log,
//! `linux/netfilter/nfnetlink_log.h`).
//!
//! [`LogGroup`] listens to one group: the kernel has one listener for each. It never
//! waits; packets that nobody reads in time are lost and counted as such.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;

use super::attributes::{Attributes, number};
use super::{FAMILY_ANY, Message, Request, Socket};
use crate::answer::{Answer, decode, decode_object, messages};
use crate::error::Error;

/// `NFNL_SUBSYS_ULOG`.
const SUBSYSTEM: u16 = 4;
/// `NFULNL_MSG_PACKET`.
const PACKET: u8 = 0;
/// `NFULNL_MSG_CONFIG`.
const CONFIG: u8 = 1;

// enum nfulnl_attr_config
const CONFIG_COMMAND: u16 = 1;
const CONFIG_MODE: u16 = 2;
const CONFIG_TIMEOUT: u16 = 4;
/// `NFULNL_CFG_CMD_BIND`.
const BIND: u8 = 1;
/// `NFULNL_COPY_PACKET`.
const COPY_PACKET: u8 = 2;

// enum nfulnl_attr_type
/// `NFULA_IFINDEX_INDEV`.
const LINK_IN: u16 = 4;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;

/// Bytes of each packet that are copied: an IPv6 header with some extension headers, or
/// an IPv4 header with options, and the first bytes of what follows.
const COPIED: u32 = 128;
/// Maximum time for which the kernel collects packets before it sends them, in
/// hundredths of a second.
const COLLECT: u32 = 20;

/// A packet that a rule has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The rule's `prefix`.
    pub prefix: String,
    /// The index of the link that it came in by.
    pub link: Option<u32>,
    /// The packet from its IP header on, cut off after some 128 bytes.
    pub packet: Vec<u8>,
}

impl Logged {
    /// Reads a message; none if it is no packet.
    pub fn read(message: &Message) -> Option<Self> {
        if message.number_of(SUBSYSTEM) != Some(PACKET) {
            return None;
        }
        Some(Self {
            prefix: message.text(PREFIX).unwrap_or_default().to_owned(),
            link: message.attribute(LINK_IN).and_then(number),
            packet: message.attribute(PAYLOAD)?.to_vec(),
        })
    }
}

/// What [`LogGroup::drain`] has received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    /// The packets.
    pub packets: Vec<Logged>,
    /// Whether the kernel had to drop some, because they were not read in time.
    pub lost: bool,
}

/// The listener of one group.
#[derive(Debug)]
pub struct LogGroup {
    socket: Socket,
    received: Vec<u8>,
}

impl AsRawFd for LogGroup {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for LogGroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.inner.as_fd()
    }
}

impl LogGroup {
    /// Listens to `group` in the calling thread's network namespace, until it is dropped.
    ///
    /// # Errors
    /// `EPERM` if another program listens to the group already ([`is_taken`]), `EINVAL` if
    /// the kernel has no nfnetlink_log; a socket that fails.
    ///
    /// [`is_taken`]: LogGroup::is_taken
    pub fn open(group: u16) -> Result<Self, Error> {
        let mut socket = Socket::open()?;
        let bind = Attributes::new().bytes(CONFIG_COMMAND, &[BIND]);
        socket.execute(&configure(group, bind))?;
        let [a, b, c, d] = COPIED.to_be_bytes();
        let settings = Attributes::new()
            .bytes(CONFIG_MODE, &[a, b, c, d, COPY_PACKET, 0])
            .number(CONFIG_TIMEOUT, COLLECT);
        socket.execute(&configure(group, settings))?;
        let fail = |error| Error::new("listen to", object(group), error);
        socket.inner.set_non_blocking(true).map_err(fail)?;
        Ok(Self {
            socket,
            received: Vec::with_capacity(crate::socket::RECEIVE_BUFFER),
        })
    }

    /// Whether opening failed because another program listens to the group. A process
    /// without `CAP_NET_ADMIN` gets the same answer.
    pub fn is_taken(error: &Error) -> bool {
        matches!(error.errno(), Some(Errno::EPERM | Errno::EBUSY))
    }

    /// The packets since the last call, without waiting, at most those of one buffer.
    ///
    /// # Errors
    /// When the socket fails; `WouldBlock` if there is nothing.
    pub fn drain(&mut self) -> io::Result<Drained> {
        let mut drained = Drained::default();
        self.received.clear();
        let truncation = nix::libc::MSG_TRUNC;
        match self.socket.inner.recv_from(&mut self.received, truncation) {
            // Only the kernel's messages count.
            Ok((_, sender)) if sender.port_number() != 0 => return Ok(drained),
            Ok((length, _)) => drained.lost = length > self.received.len(),
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                drained.lost = true;
                return Ok(drained);
            }
            Err(error) => return Err(error),
        }
        drained.packets = read(&self.received).collect();
        Ok(drained)
    }
}

/// The packets of a datagram. Whatever else is in it is left out.
pub fn read(datagram: &[u8]) -> impl Iterator<Item = Logged> {
    let messages = messages(datagram).map_while(Result::ok);
    messages.filter_map(|message| match decode(message) {
        Answer::Object { message, .. } => {
            Logged::read(&decode_object::<super::NfTables>(message).ok()?)
        }
        Answer::End(_) => None,
    })
}

fn object(group: u16) -> String {
    format!("log group {group}")
}

fn configure(group: u16, attributes: Attributes) -> Request {
    let mut message = Message::of(SUBSYSTEM, CONFIG, FAMILY_ANY, attributes);
    message.resource = group;
    Request::change("listen to", object(group), message)
}
