//! Set elements as nf_tables has them: `linux/netfilter/nf_tables.h`,
//! `enum nft_set_elem_attributes`.
//!
//! A set of single addresses holds keys. A set of ranges holds, for each range,
//! its first address and, flagged as an end, the address after its last one; a
//! range up to the highest address has no end.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sets::{self, Change, Element};
use crate::socket::Write;
use crate::wire::{self, Attributes};

const NEW_ELEMENTS: u8 = 12;
const DELETE_ELEMENTS: u8 = 14;

/// `NFTA_SET_ELEM_LIST_TABLE`.
const LIST_TABLE: u16 = 1;
/// `NFTA_SET_ELEM_LIST_SET`.
const LIST_SET: u16 = 2;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`.
pub(super) const LIST_ELEMENTS: u16 = 3;
/// `NFTA_LIST_ELEM`.
const ITEM: u16 = 1;
/// `NFTA_SET_ELEM_KEY`.
const KEY: u16 = 1;
/// `NFTA_SET_ELEM_FLAGS`.
const FLAGS: u16 = 3;
/// `NFTA_DATA_VALUE`.
const VALUE: u16 = 1;
/// `NFT_SET_ELEM_INTERVAL_END`.
const INTERVAL_END: u32 = 1;

/// Keys in one message: with 44 bytes for the longest, well under the 64 KiB
/// that an attribute can hold.
const KEYS_IN_A_MESSAGE: usize = 1000;

/// A key, and whether it ends a range.
type Key = (IpAddr, bool);

/// The messages that make `changes` in table `table`: whatever goes, goes
/// first, since elements of one set may not overlap.
pub(super) fn writes(table: &str, changes: &[Change]) -> Vec<Write> {
    let list = |message, flags, select: fn(&Change) -> &BTreeSet<Element>| {
        changes.iter().flat_map(move |change| {
            let ranges = sets::is_interval(&change.set);
            let keys: Vec<Key> = select(change)
                .iter()
                .flat_map(|element| keys(*element, ranges))
                .collect();
            keys.chunks(KEYS_IN_A_MESSAGE)
                .map(|keys| Write {
                    message,
                    flags,
                    attributes: Attributes::new()
                        .text(LIST_TABLE, table)
                        .text(LIST_SET, &change.set)
                        .nested(LIST_ELEMENTS, &encode(keys)),
                })
                .collect::<Vec<_>>()
        })
    };
    list(DELETE_ELEMENTS, 0, |change| &change.remove)
        .chain(list(NEW_ELEMENTS, wire::NLM_F_CREATE, |change| &change.add))
        .collect()
}

fn keys(element: Element, ranges: bool) -> impl Iterator<Item = Key> {
    let end = ranges.then(|| sets::next(element.last)).flatten();
    std::iter::once((element.first, false)).chain(end.map(|end| (end, true)))
}

fn encode(keys: &[Key]) -> Attributes {
    keys.iter().fold(Attributes::new(), |list, (address, end)| {
        let value = match address {
            IpAddr::V4(v4) => Attributes::new().bytes(VALUE, &v4.octets()),
            IpAddr::V6(v6) => Attributes::new().bytes(VALUE, &v6.octets()),
        };
        let mut item = Attributes::new().nested(KEY, &value);
        if *end {
            item = item.number(FLAGS, INTERVAL_END);
        }
        list.nested(ITEM, &item)
    })
}

/// What a dump of one set says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The elements that can be the reconciler's.
    pub(super) elements: BTreeSet<Element>,
    /// The others, as they came: a catch-all, an end without a beginning.
    pub(super) strange: Vec<u8>,
}

/// Reads the elements of a set: `items` are the payloads of its
/// [`LIST_ELEMENTS`] attributes.
pub(super) fn decode<'a>(items: impl Iterator<Item = &'a [u8]>, ranges: bool) -> Decoded {
    let mut decoded = Decoded::default();
    let mut keys = BTreeSet::new();
    for list in items {
        let Some(list) = wire::attributes(list) else {
            decoded.strange.extend_from_slice(list);
            continue;
        };
        for (_, item) in list {
            match key(item) {
                Some((address, false)) if !ranges => {
                    decoded.elements.insert(Element {
                        first: address,
                        last: address,
                    });
                }
                // Sorts an end before the beginning at the same address.
                Some((address, end)) if ranges => {
                    keys.insert((address, !end));
                }
                _ => decoded.strange.extend_from_slice(item),
            }
        }
    }
    pair(keys, &mut decoded);
    decoded
}

fn pair(keys: BTreeSet<(IpAddr, bool)>, decoded: &mut Decoded) {
    let mut open: Option<IpAddr> = None;
    for (address, beginning) in keys {
        match (open.take(), beginning) {
            (None, true) => open = Some(address),
            (Some(first), false) => {
                if let Some(last) = sets::previous(address) {
                    decoded.elements.insert(Element { first, last });
                }
            }
            // nft begins a set with an end at the lowest address.
            (None, false) if sets::previous(address).is_none() => {}
            (None, false) => decoded.strange.extend(address.to_string().bytes()),
            (Some(first), true) => {
                decoded.strange.extend(first.to_string().bytes());
                open = Some(address);
            }
        }
    }
    if let Some(first) = open {
        let last = match first {
            IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
            IpAddr::V6(_) => Ipv6Addr::from(u128::MAX).into(),
        };
        decoded.elements.insert(Element { first, last });
    }
}

fn key(item: &[u8]) -> Option<Key> {
    let flags = match wire::attribute(item, FLAGS) {
        Some(flags) => wire::number(flags)?,
        None => 0,
    };
    let value = wire::attribute(wire::attribute(item, KEY)?, VALUE)?;
    let address = match value.len() {
        4 => IpAddr::from(*value.first_chunk::<4>()?),
        16 => IpAddr::from(*value.first_chunk::<16>()?),
        _ => return None,
    };
    match flags {
        0 => Some((address, false)),
        INTERVAL_END => Some((address, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> Element {
        Element {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    fn round_trip(elements: &BTreeSet<Element>, ranges: bool) -> Decoded {
        let keys: Vec<Key> = elements.iter().flat_map(|e| keys(*e, ranges)).collect();
        let list = Attributes::new().nested(LIST_ELEMENTS, &encode(&keys));
        let message = wire::message(0, 0, 0, 0, 0, &list);
        let received = wire::messages(&message).unwrap();
        let (_, attributes) = received[0].family_and_attributes().unwrap();
        let attributes = attributes.to_vec();
        decode(
            wire::attribute(&attributes, LIST_ELEMENTS).into_iter(),
            ranges,
        )
    }

    #[test]
    fn elements_come_back_as_they_went() {
        let single: BTreeSet<_> =
            [range("10.0.0.1", "10.0.0.1"), range("0.0.0.0", "0.0.0.0")].into();
        let ranges: BTreeSet<_> = [
            range("0.0.0.0", "0.0.0.0"),
            range("10.244.0.0", "10.244.0.255"),
            range("10.244.1.0", "10.244.1.255"),
            range("255.255.255.0", "255.255.255.255"),
        ]
        .into();
        let ranges6: BTreeSet<_> = [
            range("fd00::", "fd00::ff"),
            range("fd00::100", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ]
        .into();
        for (elements, interval) in [(single, false), (ranges, true), (ranges6, true)] {
            assert_eq!(
                round_trip(&elements, interval),
                Decoded {
                    elements,
                    strange: vec![]
                }
            );
        }
    }

    #[test]
    fn a_catch_all_is_strange() {
        let item = Attributes::new().number(FLAGS, 2);
        let list = Attributes::new().nested(ITEM, &item);
        let message = wire::message(0, 0, 0, 0, 0, &list);
        let received = wire::messages(&message).unwrap();
        let (_, attributes) = received[0].family_and_attributes().unwrap();
        let decoded = decode([attributes].into_iter(), false);
        assert!(decoded.elements.is_empty());
        assert!(!decoded.strange.is_empty());
    }
}
