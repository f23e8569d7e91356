//! Listening to changes of links, addresses, routes, neighbours and FDB entries.
//!
//! A notification says only where to look again: by the time it is read, the
//! kernel may hold something else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};

use crate::address::Address;
use crate::error::{Cause, Error};
use crate::link::Link;
use crate::neighbour::{Fdb, Neighbour};
use crate::route::Route;
use crate::socket::{decode_object, messages};

// RTNLGRP_* of include/uapi/linux/rtnetlink.h.
const GROUPS: [u32; 6] = [
    1,  // LINK
    3,  // NEIGH, FDB entries among them
    5,  // IPV4_IFADDR
    7,  // IPV4_ROUTE
    9,  // IPV6_IFADDR
    11, // IPV6_ROUTE
];
/// Room for the notifications of some thousand changes.
const BUFFER: usize = 4 * 1024 * 1024;

/// Something changed, as the kernel told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// A link is new or changed.
    Link(Box<Link>),
    /// A link is gone.
    LinkGone(Box<Link>),
    /// An address is new or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route is gone.
    RouteGone(Route),
    /// A neighbour is new or changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(Neighbour),
    /// An FDB entry is new or changed.
    Fdb(Fdb),
    /// An FDB entry is gone.
    FdbGone(Fdb),
    /// Notifications were lost: look at everything again.
    Overflow,
}

/// A socket that hears of changes in one network namespace.
#[derive(Debug)]
pub struct Monitor {
    socket: netlink_sys::Socket,
    received: Vec<u8>,
}

impl Monitor {
    /// Opens a monitor in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no such socket.
    pub fn open() -> Result<Self, Error> {
        Self::with_room(BUFFER)
    }

    /// As [`Monitor::open`], with room for `bytes` of unread notifications.
    ///
    /// # Errors
    /// When the kernel gives no such socket.
    pub fn with_room(bytes: usize) -> Result<Self, Error> {
        Self::connect(bytes)
            .map_err(|error| Error::new("open", "the rtnetlink monitor", error.into()))
    }

    fn connect(room: usize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE)?;
        // Beyond the system's limit, which CAP_NET_ADMIN of the first user
        // namespace may pass; others get what the limit leaves.
        if setsockopt(&socket, RcvBufForce, &room).is_err() {
            setsockopt(&socket, RcvBuf, &room)?;
        }
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            received: Vec::with_capacity(64 * 1024),
        })
    }

    /// What has come in since the last call, without waiting.
    ///
    /// # Errors
    /// When the socket fails; lost notifications are not an error but
    /// [`Notification::Overflow`].
    pub fn drain(&mut self) -> Result<Vec<Notification>, Error> {
        let mut notifications = Vec::new();
        loop {
            self.received.clear();
            match self.socket.recv(&mut self.received, nix::libc::MSG_TRUNC) {
                Ok(length) if length > self.received.len() => {
                    notifications.push(Notification::Overflow);
                }
                Ok(_) => {
                    for message in messages(&self.received) {
                        // What cannot be decoded is of a kind that tweed does not make.
                        let Ok(message) = message else { break };
                        notifications.extend(
                            decode_object(message)
                                .ok()
                                .and_then(|object| notice(&object)),
                        );
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(notifications);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    notifications.push(Notification::Overflow);
                }
                Err(error) => {
                    return Err(Error::new(
                        "read",
                        "the rtnetlink monitor",
                        Cause::Io(error),
                    ));
                }
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn notice(object: &RouteNetlinkMessage) -> Option<Notification> {
    Some(match object {
        RouteNetlinkMessage::NewLink(m) => Notification::Link(Box::new(Link::parse(m))),
        RouteNetlinkMessage::DelLink(m) => Notification::LinkGone(Box::new(Link::parse(m))),
        RouteNetlinkMessage::NewAddress(m) => Notification::Address(Address::parse(m)?),
        RouteNetlinkMessage::DelAddress(m) => Notification::AddressGone(Address::parse(m)?),
        RouteNetlinkMessage::NewRoute(m) => Notification::Route(Route::parse(m)?),
        RouteNetlinkMessage::DelRoute(m) => Notification::RouteGone(Route::parse(m)?),
        RouteNetlinkMessage::NewNeighbour(m) => match Fdb::parse(m) {
            Some(entry) => Notification::Fdb(entry),
            None => Notification::Neighbour(Neighbour::parse(m)?),
        },
        RouteNetlinkMessage::DelNeighbour(m) => match Fdb::parse(m) {
            Some(entry) => Notification::FdbGone(entry),
            None => Notification::NeighbourGone(Neighbour::parse(m)?),
        },
        _ => return None,
    })
}
