//! One ICMP socket, which speaks with one address.

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

/// The longest IPv4 header, and a message.
const ANSWER: usize = 60 + LENGTH;

/// Room for what the kernel tells of an ICMP error.
const CONTROL: usize = 256;

/// Sends echo requests to one address and receives their answers, in the network
/// namespace of the thread that opened it, on whichever thread it is used.
///
/// It is a raw socket: what the kernel calls a ping socket is for no user in a
/// new namespace, not even for root. So it is given the answers to all requests
/// to its peer from that namespace. A few at once do no harm; of a hundred with
/// one peer the buffers would overflow, which counts as loss.
#[derive(Debug)]
pub struct EchoSocket {
    socket: OwnedFd,
    echo: Echo,
}

/// What somebody says instead of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Of the request.
    pub(super) number: u32,
    /// Who said it: a router, or the own kernel.
    pub(super) from: Option<IpAddr>,
    /// What it means.
    pub(super) meaning: Errno,
    /// The type and the code of the message.
    pub(super) icmp: (u8, u8),
}

impl EchoSocket {
    /// Opens one in the namespace of this thread, for requests to `peer`. It
    /// keeps the source address that the route there has now.
    ///
    /// # Errors
    /// The system's answer: no right to raw sockets, or no route.
    pub fn open(peer: impl Into<IpAddr>) -> io::Result<Self> {
        /// How many this process has opened.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let peer = peer.into();
        let (family, domain, protocol) = match peer {
            IpAddr::V4(_) => (Family::V4, AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (Family::V6, AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(domain, SockType::Raw, flags, protocol)?;
        // ICMP errors come from others than the peer, so they are not among
        // what is received; this has the kernel keep them.
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

    /// Sends the request of this number.
    ///
    /// # Errors
    /// The own kernel's reason not to send it.
    pub(super) fn send(&self, number: u32) -> Result<(), Errno> {
        // An ICMP error about an earlier request is kept as the socket's, too,
        // and would be this request's answer.
        let _ = getsockopt(&self.socket, SocketError)?;
        let message = self.echo.request(number);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty()).map(drop)
    }

    /// The number that the next received message answers; none if it is
    /// something else.
    ///
    /// # Errors
    /// The system's answer; `EAGAIN` if there is no message.
    pub(super) fn receive(&self) -> Result<Option<u32>, Errno> {
        let mut buffer = [0; ANSWER];
        let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        Ok(self.echo.answered(&buffer[..length]))
    }

    /// The next ICMP error; none if it is about something else. `last` is the
    /// latest number that was sent.
    ///
    /// # Errors
    /// The system's answer; `EAGAIN` if there is none any more.
    pub(super) fn refusal(&self, last: u32) -> Result<Option<Refusal>, Errno> {
        // As long as it is set the socket counts as one with news.
        let _ = getsockopt(&self.socket, SocketError)?;
        let mut quote = [0; ANSWER];
        let mut slices = [IoSliceMut::new(&mut quote)];
        let mut control = [0; CONTROL];
        let message = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_ERRQUEUE,
        )?;
        let told = message.cmsgs()?.find_map(|control| match control {
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
        Ok(told.zip(number).map(|((error, from), number)| Refusal {
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

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            from,
            meaning,
            icmp: (kind, code),
        } = self;
        write!(f, "request {number}: ")?;
        match from {
            Some(from) => write!(f, "{from} says ")?,
            None => write!(f, "this machine says ")?,
        }
        let meaning = meaning.desc();
        write!(f, "{meaning} (ICMP type {kind}, code {code})")
    }
}
