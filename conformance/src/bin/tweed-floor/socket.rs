//! One send, one answer for each request.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::message::Batch;

const NLMSG_ERROR: u16 = 2;

/// A netlink socket of the thread's network namespace.
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens one.
    pub fn open() -> anyhow::Result<Self> {
        socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )
        .map(Self)
        .context("no netlink socket")
    }

    /// Sends all and waits until the kernel has answered each with success.
    pub fn send(&self, batch: &Batch) -> anyhow::Result<()> {
        let fd = self.0.as_raw_fd();
        send(fd, &batch.bytes, MsgFlags::empty())?;
        let mut buffer = [0; 8192];
        let mut open = batch.count;
        while open > 0 {
            let length = recv(fd, &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some((header, _)) = rest.split_first_chunk::<20>() {
                let [a, b, c, d, kind_low, kind_high, ..] = *header;
                let [.., e, f, g, h] = *header;
                let kind = u16::from_ne_bytes([kind_low, kind_high]);
                let code = i32::from_ne_bytes([e, f, g, h]);
                if kind == NLMSG_ERROR && code != 0 {
                    bail!(
                        "request {} of {}: {}",
                        batch.count - open + 1,
                        batch.count,
                        Errno::from_raw(-code)
                    );
                }
                open = open.saturating_sub(1);
                let length = u32::from_ne_bytes([a, b, c, d]) as usize;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
        Ok(())
    }
}
