//! What the kernel reports of a link that it has just created.
//!
//! Only the numbers are read, which the creator does not know yet. The plugin runs
//! for each pod, and reading the other attributes, about fifty, would cost more than
//! writing the request.

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use netlink_packet_route::link::LinkHeader;

use super::Link;
use crate::error::Error;
use crate::rt::{Request, Socket};

/// Of `linux/rtnetlink.h` and `linux/if_link.h`.
const RTM_NEWLINK: u16 = 16;
const IFLA_LINK: u16 = 5;
const IFLA_LINK_NETNSID: u16 = 37;
/// Bytes of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;

/// The numbers of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// [`Link::index`]
    pub index: u32,
    /// [`Link::peer`]
    pub peer: Option<u32>,
    /// [`Link::peer_netns`]
    pub peer_netns: Option<i32>,
}

impl Numbers {
    /// Of a whole message; none where it is not a link's.
    fn read(message: &[u8]) -> Option<Self> {
        let message = NetlinkBuffer::new_checked(message).ok()?;
        if message.message_type() != RTM_NEWLINK {
            return None;
        }
        let link = message.payload();
        let mut numbers = Self {
            index: LinkHeader::parse(link).ok()?.index,
            peer: None,
            peer_netns: None,
        };
        for attribute in NlasIterator::new(link.get(LINK_HEADER..)?) {
            let attribute = attribute.ok()?;
            let value = || attribute.value().try_into().ok();
            match attribute.kind() {
                IFLA_LINK => numbers.peer = value().map(u32::from_ne_bytes),
                IFLA_LINK_NETNSID => numbers.peer_netns = value().map(i32::from_ne_bytes),
                _ => {}
            }
        }
        Some(numbers)
    }
}

impl From<Link> for Numbers {
    fn from(link: Link) -> Self {
        Self {
            index: link.index,
            peer: link.peer,
            peer_netns: link.peer_netns,
        }
    }
}

/// Creates a link and returns its numbers, if the kernel reports the link with its
/// answer (since Linux 6.2).
///
/// # Errors
/// The kernel's refusal, or a socket that fails.
pub fn create(socket: &mut Socket, request: &Request) -> Result<Option<Numbers>, Error> {
    socket.create(request, Numbers::read)
}
