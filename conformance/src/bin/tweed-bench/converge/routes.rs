//! Seeing the routes come and go, by the kernel's own notifications.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use tweed_lab::Netns;

use super::awaited::Awaited;
use crate::first::spawn_first;

// `linux/rtnetlink.h`
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTA_DST: u16 = 1;
const RTN_UNICAST: u8 = 1;
/// `RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE`
const GROUPS: u32 = 0x4 | 0x40;
/// Notifications of 5,000 nodes, unread.
const ROOM: usize = 64 << 20;

/// Watches a namespace from its making on.
pub struct RouteWatch {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    seen: Awaited<Seen>,
    ended: AtomicBool,
    /// The routing protocol of the routes that count.
    protocol: u8,
}

#[derive(Default)]
struct Seen {
    /// When the route to each destination was last made.
    made: BTreeMap<Ipv4Addr, Instant>,
    /// When it was last deleted.
    gone: BTreeMap<Ipv4Addr, Instant>,
    /// The first and the last message of all.
    span: Option<(Instant, Instant)>,
    failure: Option<Errno>,
}

impl RouteWatch {
    /// Listens in `netns` from now on, for routes of this protocol.
    pub fn start(netns: &Netns, protocol: u8) -> anyhow::Result<Self> {
        let socket = netns.enter(listen)?.context("a netlink socket")?;
        let shared = Arc::new(Shared {
            protocol,
            ..Shared::default()
        });
        let reading = Arc::clone(&shared);
        let reader = spawn_first(move || reading.read(&socket))?;
        Ok(Self {
            shared,
            reader: Some(reader),
        })
    }

    /// Forgets the route to `destination`: the next one is waited for.
    pub fn forget(&self, destination: Ipv4Addr) {
        let mut seen = self.shared.seen.lock();
        seen.made.remove(&destination);
        seen.gone.remove(&destination);
    }

    /// Waits until `count` destinations have had a route; gives the moment of
    /// the last one.
    pub fn wait_for_all(&self, count: usize, limit: Duration) -> anyhow::Result<Instant> {
        self.wait(limit, |seen| {
            (seen.made.len() >= count)
                .then(|| seen.made.values().max().copied())
                .flatten()
                .ok_or_else(|| format!("{} of {count} routes were made", seen.made.len()))
        })
    }

    /// Waits until there was a route to `destination`; gives that moment.
    pub fn wait_for(&self, destination: Ipv4Addr, limit: Duration) -> anyhow::Result<Instant> {
        self.wait(limit, |seen| {
            let made = seen.made.get(&destination).copied();
            made.ok_or_else(|| format!("no route to {destination} was made"))
        })
    }

    /// Waits until the route to `destination` was deleted; gives that moment.
    pub fn wait_until_gone(
        &self,
        destination: Ipv4Addr,
        limit: Duration,
    ) -> anyhow::Result<Instant> {
        self.wait(limit, |seen| {
            let gone = seen.gone.get(&destination).copied();
            gone.ok_or_else(|| format!("the route to {destination} was not deleted"))
        })
    }

    /// From the first message that was heard to the last.
    pub fn span(&self) -> Option<Duration> {
        let span = self.shared.seen.lock().span;
        span.map(|(first, last)| last - first)
    }

    fn wait<T>(
        &self,
        limit: Duration,
        check: impl Fn(&Seen) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        self.shared.seen.wait(limit, |seen| match seen.failure {
            Some(errno) => bail!("the kernel's notifications cannot be read: {errno}"),
            None => Ok(check(seen)),
        })
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // It has nothing to say.
            let _ = reader.join();
        }
    }
}

fn listen() -> nix::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM)?;
    // So that the end is seen.
    setsockopt(
        &socket,
        sockopt::ReceiveTimeout,
        &TimeVal::milliseconds(100),
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Ok(socket)
}

impl Shared {
    fn read(&self, socket: &OwnedFd) {
        let mut buffer = vec![0; 64 << 10];
        while !self.ended.load(Ordering::Relaxed) {
            let heard = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty());
            let now = Instant::now();
            match heard {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Ok(length) => self
                    .seen
                    .change(|seen| seen.take(&buffer[..length], self.protocol, now)),
                Err(errno) => self.seen.change(|seen| seen.failure = Some(errno)),
            }
        }
    }
}

impl Seen {
    fn take(&mut self, mut datagram: &[u8], protocol: u8, now: Instant) {
        while let Some((length, kind)) = header(datagram) {
            let Some(message) = datagram.get(16..length) else {
                return;
            };
            if matches!(kind, RTM_NEWNEIGH | RTM_NEWROUTE) {
                let first = self.span.map_or(now, |(first, _)| first);
                self.span = Some((first, now));
            }
            let moments = match kind {
                RTM_NEWROUTE => Some(&mut self.made),
                RTM_DELROUTE => Some(&mut self.gone),
                _ => None,
            };
            if let (Some(moments), Some(destination)) = (moments, route(message, protocol)) {
                moments.insert(destination, now);
            }
            datagram = datagram
                .get(length.next_multiple_of(4)..)
                .unwrap_or_default();
        }
    }
}

/// Length and type of a message (`struct nlmsghdr`).
fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?);
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    (length >= 16).then_some((length as usize, kind))
}

/// Where a unicast route of this protocol leads (`struct rtmsg`, then
/// attributes).
fn route(message: &[u8], protocol: u8) -> Option<Ipv4Addr> {
    if message.get(5) != Some(&protocol) || message.get(7) != Some(&RTN_UNICAST) {
        return None;
    }
    let mut attributes = message.get(12..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        if kind == RTA_DST {
            let address: [u8; 4] = *attributes.get(4..length)?.first_chunk()?;
            return Some(address.into());
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}
