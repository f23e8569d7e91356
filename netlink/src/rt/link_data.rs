//! What the kernel's messages say of links of others: pure.
//!
//! The data of a link depends on its kind. The decoder knows dozens of kinds, refuses a message
//! with data that it does not understand, and for some data panics. Of tweed's own links only
//! VXLAN devices have data that is read. So all other data is made an attribute of a kind that
//! nobody knows.

use std::borrow::Cow;

use super::attributes::{RTM_DELLINK, RTM_NEWLINK, next_attribute, number_at, rename};
use crate::answer::NLMSG_HEADER;

// Of if_link.h.
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_DATA: u16 = 5;

/// Bytes of a message about a link between its header and its attributes.
const BODY: usize = 16;
/// Of which links the data is read.
const READ: &[u8] = b"vxlan";

/// `message` with no data of links that is not read.
pub(super) fn without_foreign_data(message: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if !matches!(number_at(&message, 4), Some(RTM_NEWLINK | RTM_DELLINK)) {
        return message;
    }
    let mut foreign = Vec::new();
    let mut range = NLMSG_HEADER + BODY..message.len();
    while let Some((kind, mut info)) = next_attribute(&message, &mut range) {
        if kind != IFLA_LINKINFO {
            continue;
        }
        let mut is_read = false;
        let mut data = Vec::new();
        while let Some((kind, value)) = next_attribute(&message, &mut info) {
            match kind {
                IFLA_INFO_KIND => is_read = message[value].strip_suffix(b"\0") == Some(READ),
                IFLA_INFO_DATA => data.push(value.start),
                IFLA_INFO_SLAVE_DATA => foreign.push(value.start),
                _ => {}
            }
        }
        if !is_read {
            foreign.append(&mut data);
        }
    }
    rename(message, &foreign)
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;
    use crate::rt::attributes::testing::{attribute, message};
    use crate::rt::{Rtnetlink, link::Link};
    use crate::{answer::decode_object, protocol::Protocol};

    /// A link `a` of this kind, with this attribute of its data.
    fn link(kind: &str, data: (u16, &[u8])) -> Vec<u8> {
        let info = [
            attribute(IFLA_INFO_KIND, format!("{kind}\0").as_bytes()),
            attribute(IFLA_INFO_DATA | 0x8000, &attribute(data.0, data.1)),
        ];
        let attributes = [
            attribute(3, b"a\0"),
            attribute(IFLA_LINKINFO, &info.concat()),
        ];
        message(RTM_NEWLINK, BODY, &attributes)
    }

    fn parsed(message: &[u8]) -> Link {
        match decode_object::<Rtnetlink>(message).unwrap() {
            RouteNetlinkMessage::NewLink(read) => Link::parse(&read),
            other => panic!("{other:?}"),
        }
    }

    /// With the first the decoder of netlink-packet-route 0.34 panics, and it refuses the
    /// second.
    #[test]
    fn data_of_other_kinds_is_not_looked_at() {
        for (kind, data) in [("bareudp", (3, &[1, 2, 3][..])), ("vlan", (1, &[7]))] {
            let link = parsed(&link(kind, data));
            assert_eq!(
                (link.name.as_str(), link.kind.as_deref()),
                ("a", Some(kind))
            );
        }
    }

    #[test]
    fn a_vxlan_device_keeps_its_data() {
        let message = link("vxlan", (1, &1_u32.to_ne_bytes()));
        assert!(matches!(Rtnetlink::decodable(&message), Cow::Borrowed(_)));
        assert_eq!(parsed(&message).vxlan.unwrap().vni, 1);
    }
}
