//! Texts of others in the kernel's messages: pure.
//!
//! The kernel takes any bytes for names, aliases and labels, and the decoder refuses a
//! message with one that is not UTF-8. The object would then be missing in lists, and each
//! attempt to read it alone would fail. No text of tweed's has such bytes.

use std::{borrow::Cow, ops::Range, str};

use super::attributes::{RTM_DELLINK, RTM_NEWLINK, next_attribute, number_at};
use crate::answer::NLMSG_HEADER;

// Of include/uapi/linux/rtnetlink.h.
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;

// Of if_link.h, if_addr.h and fib_rules.h.
const IFLA_IFNAME: u16 = 3;
const IFLA_IFALIAS: u16 = 20;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFA_LABEL: u16 = 3;
const FRA_IIFNAME: u16 = 3;
const FRA_OIFNAME: u16 = 17;

/// Where the messages of an object have texts.
struct Texts {
    /// Bytes between the message's header and its attributes.
    body: usize,
    /// Attributes that are texts.
    kinds: &'static [u16],
    /// Attributes that are lists with such attributes.
    lists: &'static [u16],
}

fn texts_of(message_type: u16) -> Option<Texts> {
    let (body, kinds, lists): (_, &[u16], &[u16]) = match message_type {
        RTM_NEWLINK | RTM_DELLINK => (
            16,
            &[IFLA_IFNAME, IFLA_IFALIAS, IFLA_ALT_IFNAME],
            &[IFLA_PROP_LIST],
        ),
        RTM_NEWADDR | RTM_DELADDR => (8, &[IFA_LABEL], &[]),
        RTM_NEWRULE | RTM_DELRULE => (12, &[FRA_IIFNAME, FRA_OIFNAME], &[]),
        _ => return None,
    };
    Some(Texts { body, kinds, lists })
}

/// `message` with `?` for each byte that keeps such a text from being UTF-8.
pub(super) fn with_valid_texts(message: &[u8]) -> Cow<'_, [u8]> {
    let mut valid = Cow::Borrowed(message);
    let message_type = number_at(message, 4);
    if let Some(texts) = message_type.and_then(texts_of) {
        replace_in(&mut valid, NLMSG_HEADER + texts.body..message.len(), &texts);
    }
    valid
}

/// Replaces what is not UTF-8 in the texts among the attributes in `range`.
fn replace_in(message: &mut Cow<'_, [u8]>, mut range: Range<usize>, texts: &Texts) {
    while let Some((kind, value)) = next_attribute(message, &mut range) {
        if texts.lists.contains(&kind) {
            replace_in(message, value, texts);
        } else if texts.kinds.contains(&kind) && str::from_utf8(&message[value.clone()]).is_err() {
            make_valid(&mut message.to_mut()[value]);
        }
    }
}

fn make_valid(mut text: &mut [u8]) {
    while let Err(error) = str::from_utf8(text) {
        let start = error.valid_up_to();
        let length = error.error_len().unwrap_or(text.len() - start);
        let (invalid, rest) = text[start..].split_at_mut(length);
        invalid.fill(b'?');
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{LinkAttribute, Prop};

    use super::*;
    use crate::rt::attributes::testing::{attribute, message};
    use crate::rt::{Rtnetlink, link::Link};
    use crate::{answer::decode_object, protocol::Protocol};

    fn link(name: &[u8], alias: &[u8], other_name: &[u8]) -> Vec<u8> {
        let others = attribute(IFLA_ALT_IFNAME, other_name);
        let attributes = [
            attribute(IFLA_IFNAME, name),
            attribute(4, &1400_u32.to_ne_bytes()),
            attribute(IFLA_IFALIAS, alias),
            attribute(IFLA_PROP_LIST | 0x8000, &others),
        ];
        message(RTM_NEWLINK, 16, &attributes)
    }

    #[test]
    fn texts_of_a_link_that_are_no_utf8_are_read_with_question_marks() {
        let message = link(b"n\xf6\0", b"B\xfcro \xe2\x82 \xf0\0", b"\xff\xfe\0");
        let RouteNetlinkMessage::NewLink(read) = decode_object::<Rtnetlink>(&message).unwrap()
        else {
            panic!("not a link");
        };
        let parsed = Link::parse(&read);
        assert_eq!(parsed.name, "n?");
        assert_eq!(parsed.alias.as_deref(), Some("B?ro ?? ?"));
        assert_eq!(parsed.mtu, 1400);
        let others = LinkAttribute::PropList(vec![Prop::AltIfName("??".to_owned())]);
        assert!(read.attributes.contains(&others), "{read:?}");
    }

    #[test]
    fn valid_texts_and_other_attributes_stay_as_they_are() {
        let texts = link(b"eth0\0", "Büro €\0".as_bytes(), b"uplink\0");
        let other = message(
            RTM_NEWLINK,
            16,
            &[attribute(1, b"\xff\xff\xff\xff\xff\xff")],
        );
        let route = message(24, 12, &[attribute(3, b"\xff\xff\xff\xff")]);
        for message in [texts, other, route] {
            let valid = with_valid_texts(&message);
            assert!(matches!(valid, Cow::Borrowed(_)));
            assert_eq!(*valid, message[..]);
        }
    }

    #[test]
    fn labels_and_names_in_rules_are_read_too() {
        let label = message(RTM_NEWADDR, 8, &[attribute(IFA_LABEL, b"a:\xfc\0")]);
        let rule = [FRA_IIFNAME, FRA_OIFNAME].map(|kind| attribute(kind, b"\xfc\0"));
        let rule = message(RTM_NEWRULE, 12, &rule);
        for message in [label, rule] {
            let valid = with_valid_texts(&message);
            assert_eq!(valid.len(), message.len());
            assert!(str::from_utf8(&valid[NLMSG_HEADER + 8..]).is_ok());
        }
    }

    #[test]
    fn broken_attributes_are_left_to_the_decoder() {
        let whole = link(b"n\xf6\0", b"B\xfcro\0", b"\xff\xfe\0");
        for cut in 0..whole.len() {
            assert_eq!(Rtnetlink::decodable(&whole[..cut]).len(), cut);
        }
        for at in NLMSG_HEADER..whole.len() {
            for fill in [0, 1, 3, 4, 255] {
                let mut broken = whole.clone();
                broken[at] = fill;
                assert_eq!(Rtnetlink::decodable(&broken).len(), whole.len());
            }
        }
    }
}
