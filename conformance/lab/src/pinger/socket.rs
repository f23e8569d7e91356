//! An ICMP socket for requests to one address.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr, SocketError};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
    SockaddrIn6, SockaddrStorage, connect, getsockopt, recv, recvmsg, send, setsockopt, socket,
};

use super::packet::{Echo, Family, LENGTH};

/// Maximum size of an answer in bytes: the longest IPv4 header and a message.
const MAX_ANSWER: usize = 60 + LENGTH;

/// Size in bytes of the buffer for the kernel's description of an ICMP error.
const CONTROL_BYTES: usize = 256;

/// Sends echo requests to one address and receives their answers. It belongs to the
/// network namespace of the thread that opened it, and can be used on any thread.
///
/// It is a raw socket: in a new namespace no user, not even root, may open what the
/// kernel calls a ping socket. A raw socket also receives the answers to all other
/// requests to the same address from that namespace. A few sockets for one address
/// are harmless; with a hundred of them the buffers would overflow, which counts as
/// loss.
#[derive(Debug)]
pub struct EchoSocket {
    socket: OwnedFd,
    echo: Echo,
}

/// An ICMP error that came instead of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IcmpError {
    /// The number of the request.
    pub(super) number: u32,
    /// The router that sent it; `None` if it is of the local kernel.
    pub(super) from: Option<IpAddr>,
    /// The error that the kernel derives from it.
    pub(super) meaning: Errno,
    /// Type and code of the message.
    pub(super) icmp: (u8, u8),
}

impl EchoSocket {
    /// Opens a socket in the namespace of this thread, for requests to `peer`. It
    /// keeps the source address that the route to `peer` has now.
    ///
    /// # Errors
    /// The system's error: no right to open raw sockets, or no route.
    pub fn open(peer: impl Into<IpAddr>) -> io::Result<Self> {
        /// The number of sockets that this process has opened.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let peer = peer.into();
        let (family, domain, protocol) = match peer {
            IpAddr::V4(_) => (Family::V4, AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (Family::V6, AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(domain, SockType::Raw, flags, protocol)?;
        // A connected socket does not receive ICMP errors, which come from other
        // addresses than `peer`; with this option the kernel queues them.
        match family {
            Family::V4 => setsockopt(&socket, Ipv4RecvErr, &true)?,
            Family::V6 => setsockopt(&socket, Ipv6RecvErr, &true)?,
        }
        let address = SockaddrStorage::from(SocketAddr::new(peer, 0));
        connect(socket.as_raw_fd(), &address)?;
        let count = OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            socket,
            echo: Echo::new(family, std::process::id(), count),
        })
    }

    /// Sends the request with this number.
    ///
    /// # Errors
    /// The local kernel's reason not to send it.
    pub(super) fn send(&self, number: u32) -> Result<(), Errno> {
        // An ICMP error about an earlier request is also pending on the socket, and
        // `send` would return it for this request: read it first.
        let _ = getsockopt(&self.socket, SocketError)?;
        let message = self.echo.request(number);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty()).map(drop)
    }

    /// Receives a message; the number of the request that it answers, or `None` if it
    /// is something else.
    ///
    /// # Errors
    /// The system's error; `EAGAIN` if there is no message.
    pub(super) fn receive(&self) -> Result<Option<u32>, Errno> {
        let mut buffer = [0; MAX_ANSWER];
        let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        Ok(self.echo.answered(&buffer[..length]))
    }

    /// Receives an ICMP error; `None` if it is about a request of another socket.
    /// `last` is the number of the last request.
    ///
    /// # Errors
    /// The system's error; `EAGAIN` if there is no ICMP error.
    pub(super) fn next_icmp_error(&self, last: u32) -> Result<Option<IcmpError>, Errno> {
        // While the pending error is set, epoll reports the socket as ready.
        let _ = getsockopt(&self.socket, SocketError)?;
        let mut quote = [0; MAX_ANSWER];
        let mut slices = [IoSliceMut::new(&mut quote)];
        let mut control = [0; CONTROL_BYTES];
        let message = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_ERRQUEUE,
        )?;
        let received = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4RecvErr(error, from) => {
                let from = from.map(|from| SockaddrIn::from(from).ip().into());
                Some((error, from))
            }
            ControlMessageOwned::Ipv6RecvErr(error, from) => {
                let from = from.map(|from| SockaddrIn6::from(from).ip().into());
                Some((error, from))
            }
            _ => None,
        });
        let length = message.bytes;
        let number = quote.get(..length).and_then(|q| self.echo.quoted(q, last));
        Ok(received
            .zip(number)
            .map(|((error, from), number)| IcmpError {
                number,
                from,
                meaning: Errno::from_raw(error.ee_errno.cast_signed()),
                icmp: (error.ee_type, error.ee_code),
            }))
    }
}

impl AsFd for EchoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Display for IcmpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            from,
            meaning,
            icmp: (kind, code),
        } = self;
        write!(f, "request {number}: ")?;
        match from {
            Some(from) => write!(f, "{from} answers ")?,
            None => write!(f, "the local kernel answers ")?,
        }
        let meaning = meaning.desc();
        write!(f, "{meaning} (ICMP type {kind}, code {code})")
    }
}
