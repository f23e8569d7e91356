//! Reading notifications of what changes in one network namespace, for every
//! netlink protocol.
//!
//! A notification says only where to look again: by the time it is read, the
//! kernel may hold something else.

use std::os::fd::{AsFd, BorrowedFd};
use std::{io, marker::PhantomData};

use netlink_packet_core::NetlinkBuffer;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::{errno::Errno, sys::socket::setsockopt};

use crate::answer::{decode_object, messages};
use crate::error::Error;
use crate::protocol::Protocol;
use crate::socket::RECEIVE_BUFFER;

/// The notifications of a protocol.
pub trait Notify: Protocol {
    /// The multicast groups to join.
    const GROUPS: &'static [u32];
    /// Size of the kernel's buffer for unread notifications, in bytes.
    const BUFFER: usize;
    /// What a message means.
    type Notification;

    /// Notifications were lost.
    fn lost() -> Self::Notification;

    /// Reads a message; none if it concerns nobody. `port` is the address of the
    /// socket whose request caused the change (0: the kernel itself), `message` is
    /// none if it cannot be decoded.
    fn read(port: u32, message: Option<Self::Message>) -> Option<Self::Notification>;
}

/// A socket that receives notifications and never waits.
#[derive(Debug)]
pub struct Monitor<P: Notify> {
    socket: netlink_sys::Socket,
    received: Vec<u8>,
    protocol: PhantomData<P>,
}

impl<P: Notify> Monitor<P> {
    /// Opens a monitor in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no such socket.
    pub fn open() -> Result<Self, Error> {
        Self::with_room(P::BUFFER)
    }

    /// As [`Monitor::open`], with room for `bytes` of unread notifications.
    ///
    /// # Errors
    /// When the kernel gives no such socket.
    pub fn with_room(bytes: usize) -> Result<Self, Error> {
        Self::connect(bytes)
            .map_err(|error| Error::new("open", format!("the {} monitor", P::NAME), error))
    }

    fn connect(room: usize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(P::NUMBER)?;
        // Beyond the system's limit, which CAP_NET_ADMIN of the first user
        // namespace may pass; others get what the limit leaves.
        if setsockopt(&socket, RcvBufForce, &room).is_err() {
            setsockopt(&socket, RcvBuf, &room)?;
        }
        socket.bind_auto()?;
        for group in P::GROUPS {
            socket.add_membership(*group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            received: Vec::with_capacity(RECEIVE_BUFFER),
            protocol: PhantomData,
        })
    }

    /// The notifications since the last call, without waiting.
    ///
    /// # Errors
    /// When the socket fails; lost notifications are not an error but
    /// [`Notify::lost`].
    pub fn drain(&mut self) -> Result<Vec<P::Notification>, Error> {
        let mut notifications = Vec::new();
        loop {
            self.received.clear();
            let truncation = nix::libc::MSG_TRUNC;
            match self.socket.recv_from(&mut self.received, truncation) {
                // A multicast group is no protection against messages sent to this
                // socket alone: only the kernel's count.
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((length, _)) if length > self.received.len() => notifications.push(P::lost()),
                Ok(_) => self.read(&mut notifications),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(notifications),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    notifications.push(P::lost());
                }
                Err(error) => {
                    let monitor = format!("the {} monitor", P::NAME);
                    break Err(Error::new("read", monitor, error));
                }
            }
        }
    }

    fn read(&self, notifications: &mut Vec<P::Notification>) {
        for message in messages(&self.received) {
            let Ok(message) = message else {
                // The rest of the datagram cannot be told apart.
                notifications.push(P::lost());
                return;
            };
            let port = NetlinkBuffer::new(message).port_number();
            notifications.extend(P::read(port, decode_object::<P>(message).ok()));
        }
    }
}

impl<P: Notify> AsFd for Monitor<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
