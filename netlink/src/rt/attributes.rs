//! Messages of the kernel as bytes, for what is changed in them before they are decoded.

use std::borrow::Cow;
use std::ops::Range;

// Of include/uapi/linux/rtnetlink.h.
pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;

/// Bytes of an attribute before its value.
const ATTRIBUTE_HEADER: usize = 4;
/// A kind of attribute that the kernel does not have.
const UNKNOWN: u16 = 0x3fff;
/// Flags in an attribute's kind (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const KIND_FLAGS: u16 = 0xc000;

/// The kind and the place of the value of the first attribute in `range`, which then begins
/// after it; none if there is no whole one.
pub(super) fn next_attribute(
    message: &[u8],
    range: &mut Range<usize>,
) -> Option<(u16, Range<usize>)> {
    let length = usize::from(number_at(message, range.start)?);
    let kind = number_at(message, range.start + 2)? & !KIND_FLAGS;
    let value = range.start + ATTRIBUTE_HEADER..range.start + length;
    if value.start > value.end || value.end > range.end {
        return None;
    }
    range.start += length.next_multiple_of(4);
    Some((kind, value))
}

/// `message` in which the attributes whose values begin at `values` are of a kind that nobody
/// reads.
pub(super) fn rename<'a>(mut message: Cow<'a, [u8]>, values: &[usize]) -> Cow<'a, [u8]> {
    for value in values {
        let kind = value - ATTRIBUTE_HEADER + 2;
        message.to_mut()[kind..kind + 2].copy_from_slice(&UNKNOWN.to_ne_bytes());
    }
    message
}

pub(super) fn number_at(bytes: &[u8], at: usize) -> Option<u16> {
    let number = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*number))
}

#[cfg(test)]
pub(super) mod testing {
    use crate::answer::NLMSG_HEADER;

    pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len() as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    pub fn message(message_type: u16, body: usize, attributes: &[Vec<u8>]) -> Vec<u8> {
        let joined = attributes.concat();
        let length = NLMSG_HEADER + body + joined.len();
        let mut bytes = (length as u32).to_ne_bytes().to_vec();
        bytes.extend(message_type.to_ne_bytes());
        bytes.resize(NLMSG_HEADER + body, 0);
        bytes.extend(joined);
        bytes
    }
}
