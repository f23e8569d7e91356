//! What distinguishes one netlink protocol from another.

use std::{borrow::Cow, fmt::Debug};

use netlink_packet_core::{NetlinkDeserializable, NetlinkSerializable};

/// A protocol of netlink: which socket to open, and what its messages are.
pub trait Protocol: Debug + Clone + 'static {
    /// Its number: `NETLINK_…` of `linux/netlink.h`.
    const NUMBER: isize;
    /// Its name, for errors.
    const NAME: &'static str;
    /// The content of requests, answers and notifications.
    type Message: NetlinkSerializable + NetlinkDeserializable + Debug + Clone;

    /// A message of the kernel, with its header, without what the decoder of
    /// [`Self::Message`] would refuse it for although it is sound.
    fn decodable(message: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(message)
    }
}
