//! Reading notifications of what changes in one network namespace, for every
//! netlink protocol.
//!
//! A notification says only where to look again: by the time it is read, the
//! kernel may hold something else.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    membership: Membership<P>,
    received: Vec<u8>,
}

/// The membership of a monitor in its multicast groups, which it can give up for a while:
/// the kernel writes notifications only where somebody listens, and those of a large change
/// cost it more than the change.
#[derive(Debug)]
pub struct Membership<P: Notify> {
    socket: Arc<netlink_sys::Socket>,
    state: Arc<State>,
    protocol: PhantomData<P>,
}

/// What a monitor may not have heard.
#[derive(Debug, Default)]
struct State {
    /// It has left, and nobody has said yet that it has missed nothing.
    away: AtomicBool,
    /// It may have missed something when it was away before.
    missed: AtomicBool,
}

impl<P: Notify> Clone for Membership<P> {
    fn clone(&self) -> Self {
        Self {
            socket: Arc::clone(&self.socket),
            state: Arc::clone(&self.state),
            protocol: PhantomData,
        }
    }
}

impl<P: Notify> Membership<P> {
    /// Has the monitor hear nothing until [`Self::join`]. What it then reads first is that
    /// notifications were lost, unless [`Self::missed_nothing`] is called; if it is read
    /// before, it joins by itself.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn leave(&self) -> Result<(), Error> {
        if self.state.away.swap(true, Ordering::Relaxed) {
            self.state.missed.store(true, Ordering::Relaxed);
        }
        self.each_group(netlink_sys::Socket::drop_membership)
            .map_err(|error| Error::new("leave the groups of", monitor::<P>(), error))
    }

    /// Has the monitor hear again.
    ///
    /// # Errors
    /// When the kernel refuses it; the monitor tries it again when it is read.
    pub fn join(&self) -> Result<(), Error> {
        self.each_group(netlink_sys::Socket::add_membership)
            .map_err(|error| Error::new("join the groups of", monitor::<P>(), error))
    }

    /// Says that nothing has changed between the last [`Self::leave`] and [`Self::join`] that
    /// the monitor is for.
    pub fn missed_nothing(&self) {
        self.state.away.store(false, Ordering::Relaxed);
    }

    /// Whether something may have been missed since this was last asked.
    fn take_missed(&self) -> bool {
        let away = self.state.away.swap(false, Ordering::Relaxed);
        self.state.missed.swap(false, Ordering::Relaxed) || away
    }

    fn each_group(&self, act: fn(&netlink_sys::Socket, u32) -> io::Result<()>) -> io::Result<()> {
        P::GROUPS
            .iter()
            .try_for_each(|group| act(&self.socket, *group))
    }
}

fn monitor<P: Notify>() -> String {
    format!("the {} monitor", P::NAME)
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
        Self::connect(bytes).map_err(|error| Error::new("open", monitor::<P>(), error))
    }

    fn connect(room: usize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(P::NUMBER)?;
        // Beyond the system's limit, which CAP_NET_ADMIN of the first user
        // namespace may pass; others get what the limit leaves.
        if setsockopt(&socket, RcvBufForce, &room).is_err() {
            setsockopt(&socket, RcvBuf, &room)?;
        }
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        let membership = Membership {
            socket: Arc::new(socket),
            state: Arc::default(),
            protocol: PhantomData,
        };
        membership.each_group(netlink_sys::Socket::add_membership)?;
        Ok(Self {
            membership,
            received: Vec::with_capacity(RECEIVE_BUFFER),
        })
    }

    /// Its membership, for whoever is about to make a large change.
    pub fn membership(&self) -> Membership<P> {
        self.membership.clone()
    }

    /// The notifications since the last call, without waiting.
    ///
    /// # Errors
    /// When the socket fails; lost notifications are not an error but
    /// [`Notify::lost`].
    pub fn drain(&mut self) -> Result<Vec<P::Notification>, Error> {
        let mut notifications = Vec::new();
        if self.membership.take_missed() {
            if let Err(error) = self.membership.join() {
                self.membership.state.away.store(true, Ordering::Relaxed);
                return Err(error);
            }
            notifications.push(P::lost());
        }
        let socket = Arc::clone(&self.membership.socket);
        loop {
            self.received.clear();
            let truncation = nix::libc::MSG_TRUNC;
            match socket.recv_from(&mut self.received, truncation) {
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
                    break Err(Error::new("read", monitor::<P>(), error));
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
        self.membership.socket.as_fd()
    }
}
