//! What the kernel says of a link that it has just made.
//!
//! Only its numbers are not known to whoever has asked for it. A plugin is run for
//! each pod, and to read the other attributes, some fifty, costs it more than to
//! write the request: so they are passed over.

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

/// Makes a link, and gives its numbers, where the kernel tells of it with its
/// answer (from Linux 6.2 on).
///
/// # Errors
/// The kernel's refusal, or a socket that fails.
pub fn create(socket: &mut Socket, request: &Request) -> Result<Option<Numbers>, Error> {
    socket.create(request, Numbers::read)
}
