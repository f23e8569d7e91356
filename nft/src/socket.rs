//! The two netlink sockets: one that asks, one that listens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

use crate::error::Error;
use crate::wire::{self, Attributes, Received};

/// Multicast group of nf_tables' notifications: `NFNLGRP_NFTABLES`.
const NOTIFICATIONS: u32 = 7;
/// No datagram of nf_tables is longer: the kernel fills dumps and
/// notifications into buffers of at most 32 KiB.
const DATAGRAM: usize = 64 * 1024;
/// `MSG_TRUNC`: say how long the datagram was, though it did not fit.
const TRUNCATION: i32 = 0x20;
/// How often an interrupted dump is tried again.
const DUMP_TRIES: usize = 20;

/// One object of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Its address family.
    pub(super) family: u8,
    /// Its attributes.
    pub(super) attributes: Vec<u8>,
}

/// One change in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    /// `NFT_MSG_…`.
    pub(super) message: u8,
    /// `NLM_F_…` beyond request and acknowledgement.
    pub(super) flags: u16,
    /// Which object, and how it should be.
    pub(super) attributes: Attributes,
}

/// What is asked for, for the request and for a person.
#[derive(Debug, Clone)]
pub(super) struct Query<'a> {
    /// `NFT_MSG_GET…`.
    pub(super) message: u8,
    /// The family, or [`wire::FAMILY_ANY`].
    pub(super) family: u8,
    /// Which object or objects.
    pub(super) attributes: Attributes,
    /// For errors: `set local_cidrs4`.
    pub(super) object: &'a str,
}

/// The socket that asks and writes.
pub(super) struct Requests {
    socket: Socket,
    port: u32,
    sequence: u32,
}

impl Requests {
    /// A socket in the calling thread's network namespace.
    pub(super) fn open() -> Result<Self, Error> {
        let (socket, port) = open_socket()?;
        // The kernel queues an answer while the request is sent, and the next
        // part of a dump while the last one is read: there is nothing to wait
        // for, and a lost answer cannot hang the thread.
        socket.set_non_blocking(true).map_err(Error::unavailable)?;
        socket.set_cap_ack(true).map_err(Error::unavailable)?;
        Ok(Self {
            socket,
            port,
            sequence: 0,
        })
    }

    /// Notifications that carry this port are about the own transactions.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// One object; none where it is missing.
    pub(super) fn get(&mut self, query: &Query<'_>) -> Result<Option<Object>, Error> {
        let sequence = self.ask(query, 0)?;
        loop {
            let datagram = self.receive(query.object)?;
            for received in read(&datagram, query.object)? {
                if received.sequence != sequence {
                    continue;
                }
                if received.kind != wire::NLMSG_ERROR {
                    return object(&received, query.object).map(Some);
                }
                return match errno(&received, query.object)? {
                    Some(Errno::ENOENT) => Ok(None),
                    code => Err(refused("read", query.object, code)),
                };
            }
        }
    }

    /// Every object that the query matches; none where what they stand in is
    /// missing. Consistent in itself: a dump that was interrupted by a change
    /// is made again.
    pub(super) fn dump(&mut self, query: &Query<'_>) -> Result<Vec<Object>, Error> {
        for _ in 0..DUMP_TRIES {
            if let Some(objects) = self.dump_once(query)? {
                return Ok(objects);
            }
        }
        Err(Error::Interrupted {
            object: query.object.to_owned(),
            tries: DUMP_TRIES,
        })
    }

    fn dump_once(&mut self, query: &Query<'_>) -> Result<Option<Vec<Object>>, Error> {
        let sequence = self.ask(query, wire::NLM_F_DUMP)?;
        let mut objects = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = self.receive(query.object)?;
            for received in read(&datagram, query.object)? {
                if received.sequence != sequence {
                    continue;
                }
                interrupted |= received.flags & wire::NLM_F_DUMP_INTR != 0;
                if !matches!(received.kind, wire::NLMSG_DONE | wire::NLMSG_ERROR) {
                    objects.push(object(&received, query.object)?);
                    continue;
                }
                return match errno(&received, query.object)? {
                    None => Ok((!interrupted).then_some(objects)),
                    Some(Errno::ENOENT) => Ok(Some(Vec::new())),
                    Some(Errno::EINTR) => Ok(None),
                    code => Err(refused("dump", query.object, code)),
                };
            }
        }
    }

    /// Makes all `writes` to family inet in one transaction, or none of them.
    /// `EMSGSIZE` in the error says that they do not fit into one.
    pub(super) fn transact(&mut self, writes: &[Write], object: &str) -> Result<(), Error> {
        let none = Attributes::new();
        let begin = self.next_sequence();
        let mut bytes = wire::message(wire::BATCH_BEGIN, 0, begin, 0, wire::SUBSYSTEM, &none);
        for write in writes {
            let sequence = self.next_sequence();
            bytes.extend(wire::message(
                wire::nf_tables(write.message),
                write.flags | wire::NLM_F_ACK,
                sequence,
                wire::FAMILY_INET,
                0,
                &write.attributes,
            ));
        }
        let end = self.next_sequence();
        bytes.extend(wire::message(
            wire::BATCH_END,
            0,
            end,
            0,
            wire::SUBSYSTEM,
            &none,
        ));
        self.send(&bytes, object)?;
        let mut unanswered = writes.len();
        while unanswered > 0 {
            let datagram = self.receive(object)?;
            for received in read(&datagram, object)? {
                // Sequence numbers only grow: older ones answer a request
                // that was given up.
                if received.kind != wire::NLMSG_ERROR
                    || received.sequence.wrapping_sub(begin) > end.wrapping_sub(begin)
                {
                    continue;
                }
                match errno(&received, object)? {
                    None => unanswered = unanswered.saturating_sub(1),
                    code => return Err(refused("change", object, code)),
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, query: &Query<'_>, flags: u16) -> Result<u32, Error> {
        let sequence = self.next_sequence();
        let bytes = wire::message(
            wire::nf_tables(query.message),
            flags,
            sequence,
            query.family,
            0,
            &query.attributes,
        );
        self.send(&bytes, query.object)?;
        Ok(sequence)
    }

    fn send(&self, bytes: &[u8], object: &str) -> Result<(), Error> {
        self.socket
            .send_to(bytes, &SocketAddr::new(0, 0), 0)
            .map(|_| ())
            .map_err(|source| Error::Kernel {
                operation: "send a request about",
                object: object.to_owned(),
                source,
            })
    }

    fn receive(&self, object: &str) -> Result<Vec<u8>, Error> {
        receive(&self.socket).map_err(|source| Error::Kernel {
            operation: "read the answer about",
            object: object.to_owned(),
            source,
        })
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

/// The socket that listens to nf_tables' notifications, without waiting.
pub(super) struct Monitor {
    socket: Socket,
}

impl Monitor {
    /// A socket in the calling thread's network namespace.
    pub(super) fn open() -> Result<Self, Error> {
        let (socket, _) = open_socket()?;
        socket
            .add_membership(NOTIFICATIONS)
            .map_err(Error::unavailable)?;
        socket.set_non_blocking(true).map_err(Error::unavailable)?;
        Ok(Self { socket })
    }

    /// The next datagram; none when all have been read. `ENOBUFS` says that
    /// some were lost.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match receive(&self.socket) {
            Ok(datagram) => Ok(Some(datagram)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open_socket() -> Result<(Socket, u32), Error> {
    let mut socket = Socket::new(NETLINK_NETFILTER).map_err(Error::unavailable)?;
    let address = socket.bind_auto().map_err(Error::unavailable)?;
    Ok((socket, address.port_number()))
}

/// One whole datagram of the kernel's; those of other senders are passed over.
fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    loop {
        let mut datagram = Vec::with_capacity(DATAGRAM);
        let (length, sender) = match socket.recv_from(&mut datagram, TRUNCATION) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if length > datagram.len() {
            return Err(Errno::ENOBUFS.into());
        }
        if sender.port_number() == 0 {
            return Ok(datagram);
        }
    }
}

fn read<'a>(datagram: &'a [u8], object: &str) -> Result<Vec<Received<'a>>, Error> {
    wire::messages(datagram).ok_or_else(|| malformed(object, "a message's length cannot be"))
}

fn object(received: &Received<'_>, object: &str) -> Result<Object, Error> {
    let (family, attributes) = received
        .family_and_attributes()
        .ok_or_else(|| malformed(object, "a message is too short"))?;
    Ok(Object {
        family,
        attributes: attributes.to_vec(),
    })
}

fn errno(received: &Received<'_>, object: &str) -> Result<Option<Errno>, Error> {
    match received.errno() {
        Some(0) => Ok(None),
        Some(code) => Ok(Some(Errno::from_raw(code))),
        None => Err(malformed(object, "an error message is too short")),
    }
}

fn refused(operation: &'static str, object: &str, code: Option<Errno>) -> Error {
    Error::Kernel {
        operation,
        object: object.to_owned(),
        source: code.unwrap_or(Errno::UnknownErrno).into(),
    }
}

fn malformed(object: &str, what: &'static str) -> Error {
    Error::Malformed {
        object: object.to_owned(),
        what,
    }
}
