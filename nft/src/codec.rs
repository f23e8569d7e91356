//! Elements as the kernel has them: `linux/netfilter/nf_tables.h`, `enum
//! nft_set_elem_attributes`.
//!
//! There are three shapes:
//! - without intervals, an element is a key;
//! - with intervals of one field, it is its first value and, as an element of its
//!   own that is flagged as an end, the value after its last one; a range up to the
//!   highest value has no end;
//! - with intervals of several fields, it is two keys in one element, that of all
//!   first values and that of all last ones.
//!
//! The fields of a concatenated key or of concatenated data are each padded to four
//! bytes. A map's element has data beside its key.
//!
//! In keys with intervals of several fields all numbers have network byte order, also
//! those that a packet's data has in the order of the machine: the kernel compares them
//! byte by byte, so `nft` puts a conversion into each rule that looks such a key up.

use std::collections::{BTreeMap, BTreeSet};

use tweed_netlink::nf::attributes::{self, Attributes};
use tweed_netlink::nf::element::{DATA, FLAGS, INTERVAL_END, ITEM, KEY, KEY_END, VALUE};
use tweed_netlink::nf::object::{DELETE_ELEMENTS, ELEMENTS, NEW_ELEMENTS, SET_NAME, TableKey};
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{Message, Transaction};

use crate::element::{Change, Data, Elements, Field, Key};
use crate::table::{DataType, Set};
use crate::value::{Type, Value};

/// The number of keys with which a message is full, and the size of their list in bytes:
/// the length of an attribute has 16 bits, and no element comes near the rest of them.
const KEYS_IN_A_MESSAGE: usize = 1000;
const BYTES_IN_A_MESSAGE: usize = 60_000;

/// Whether ranges of values are two keys in one element.
fn has_key_ends(set: &Set) -> bool {
    set.interval && set.key.len() > 1
}

/// The byte order of the numbers that have the machine's order in a packet's data.
#[derive(Debug, Clone, Copy)]
enum Order {
    Native,
    Network,
}

/// The order of the keys of a set.
fn order(set: &Set) -> Order {
    if has_key_ends(set) {
        Order::Network
    } else {
        Order::Native
    }
}

/// The transaction that makes `changes` in `table`, which has these sets. All
/// removals come first: elements of one set may not overlap, and a key of a map may
/// get other data. The sets in `flushed` lose all their elements before.
pub(super) fn transaction(
    table: TableKey<'_>,
    sets: &[Set],
    changes: &[Change],
    flushed: &[String],
) -> Transaction {
    let mut transaction = Transaction::new(format!("table {table}"));
    let set_of = |change: &Change| sets.iter().find(|set| set.name == change.set);
    let message = |number, set: &Set, list: &Attributes| -> Message {
        let name = Attributes::new().text(SET_NAME, &set.name);
        table.message(number, name.nested(ELEMENTS, list))
    };
    // A message without elements is about all of them.
    for set in flushed {
        let name = Attributes::new().text(SET_NAME, set);
        transaction.delete(table.message(DELETE_ELEMENTS, name));
    }
    for change in changes {
        let Some(set) = set_of(change) else { continue };
        let removed = change.delta.removed.iter();
        for list in lists(set, removed.map(|(key, _)| (key, None))) {
            transaction.delete(message(DELETE_ELEMENTS, set, &list));
        }
    }
    for change in changes {
        let Some(set) = set_of(change) else { continue };
        let added = change.delta.added.iter();
        for list in lists(set, added.map(|(key, data)| (key, data.as_deref()))) {
            transaction.create(message(NEW_ELEMENTS, set, &list));
        }
    }
    transaction
}

/// The list that asks for one element of a set without intervals.
pub(super) fn wanted(set: &Set, key: &Key) -> Attributes {
    element_to(Attributes::new(), set, key, None).0
}

/// Puts elements into as few lists as messages can hold.
fn lists<'a>(
    set: &Set,
    elements: impl Iterator<Item = (&'a Key, Option<&'a Data>)>,
) -> Vec<Attributes> {
    let mut lists = Vec::new();
    let (mut list, mut keys) = (Attributes::new(), 0);
    for (key, data) in elements {
        let items;
        (list, items) = element_to(list, set, key, data);
        keys += items;
        if keys >= KEYS_IN_A_MESSAGE || list.as_bytes().len() >= BYTES_IN_A_MESSAGE {
            lists.push(std::mem::take(&mut list));
            keys = 0;
        }
    }
    lists.extend((keys > 0).then_some(list));
    lists
}

/// Appends one element, as one or two items, and says which.
fn element_to(list: Attributes, set: &Set, key: &Key, data: Option<&Data>) -> (Attributes, usize) {
    let fields = key.fields();
    let order = order(set);
    let with_element = list.nest(ITEM, |item| {
        let first = fields.iter().map(|field| field.first);
        let mut item = values_to(item, KEY, first, order);
        if has_key_ends(set) {
            let last = fields.iter().map(|field| field.last);
            item = values_to(item, KEY_END, last, order);
        }
        match data {
            None => item,
            Some(Data::Verdict(verdict)) => item.nested(DATA, &verdict.write()),
            Some(Data::Value(value)) => {
                values_to(item, DATA, std::iter::once(*value), Order::Native)
            }
            Some(Data::Values(values)) => {
                values_to(item, DATA, values.iter().copied(), Order::Native)
            }
        }
    });
    let end = match fields {
        [field] if set.interval => field.last.next(),
        _ => None,
    };
    match end {
        None => (with_element, 1),
        Some(end) => {
            let with_end = with_element.nest(ITEM, |item| {
                let item = values_to(item, KEY, std::iter::once(end), order);
                item.number(FLAGS, INTERVAL_END)
            });
            (with_end, 2)
        }
    }
}

/// Appends one value, or several that are concatenated.
fn values_to(
    item: Attributes,
    kind: u16,
    values: impl Iterator<Item = Value>,
    order: Order,
) -> Attributes {
    let write = |bytes: &mut Vec<u8>| {
        let start = bytes.len();
        for value in values {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            match order {
                Order::Native => value.write(bytes),
                Order::Network => value.write_for_network(bytes),
            }
        }
        // The last of several is padded, too; one alone is not.
        if bytes.len() - start > 4 {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
    };
    item.nest(kind, |value| value.written(VALUE, write))
}

/// What a dump of one set says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The elements that can be the reconciler's.
    pub(super) elements: Elements,
    /// The others, as bytes: elements that tweed never writes, such as a catch-all
    /// or an end without a beginning.
    pub(super) foreign: Vec<u8>,
}

/// The values of a single field's range: from here on, or up to before here. An end
/// comes before a beginning at the same value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Bound {
    value: Value,
    begins: bool,
}

/// Reads the elements of a set: `lists` are the payloads of its [`ELEMENTS`].
pub(super) fn decode<'a>(set: &Set, lists: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let (mut decoded, mut bounds) = (Decoded::default(), BTreeMap::new());
    for (_, item) in lists.flat_map(attributes::each) {
        if element(set, item, &mut decoded.elements, &mut bounds).is_none() {
            decoded.foreign.extend_from_slice(item);
        }
    }
    pair(set, bounds, &mut decoded);
    decoded
}

/// Enters one item; none if it is not what this set's items are.
fn element(
    set: &Set,
    item: &[u8],
    elements: &mut Elements,
    bounds: &mut BTreeMap<Bound, Option<Box<Data>>>,
) -> Option<()> {
    let flags = attributes::find(item, FLAGS).map_or(Some(0), attributes::number)?;
    let values = |kind| read(&set.key, attributes::find(item, kind)?, order(set));
    let first = values(KEY)?;
    let data = || -> Option<Option<Box<Data>>> {
        let Some(kind) = &set.data else {
            return Some(None);
        };
        let payload = attributes::find(item, DATA)?;
        let data = match kind {
            DataType::Verdict => Data::Verdict(Verdict::read(payload)?),
            DataType::Values(types) => read(types, payload, Order::Native)?.into(),
        };
        Some(Some(Box::new(data)))
    };
    match (flags, &first[..]) {
        (0 | INTERVAL_END, [value]) if set.interval => {
            let begins = flags == 0;
            let data = if begins { data()? } else { None };
            let value = *value;
            bounds.insert(Bound { value, begins }, data);
        }
        (0, _) => {
            let last = match attributes::find(item, KEY_END) {
                Some(_) => values(KEY_END)?,
                None => first.clone(),
            };
            let fields = first.into_iter().zip(last);
            let key = fields.map(|(first, last)| Field { first, last }).collect();
            elements.insert(key, data()?);
        }
        _ => return None,
    }
    Some(())
}

/// Reads one value, or several that are concatenated.
fn read(types: &[Type], payload: &[u8], order: Order) -> Option<Vec<Value>> {
    let mut rest = attributes::find(payload, VALUE)?;
    let mut values = Vec::with_capacity(types.len());
    for kind in types {
        let bytes = rest.get(..kind.size())?;
        values.push(match order {
            Order::Native => kind.read(bytes)?,
            Order::Network => kind.read_from_network(bytes)?,
        });
        let padded = kind.size().next_multiple_of(4);
        rest = rest.get(padded..).unwrap_or_default();
    }
    rest.is_empty().then_some(values)
}

/// Makes ranges of the bounds of a set of one field.
fn pair(set: &Set, bounds: BTreeMap<Bound, Option<Box<Data>>>, decoded: &mut Decoded) {
    let mut open: Option<(Value, Option<Box<Data>>)> = None;
    let mut foreign = BTreeSet::new();
    for (Bound { value, begins }, data) in bounds {
        match (open.take(), begins) {
            (None, true) => open = Some((value, data)),
            (Some((first, data)), false) => {
                if let Some(last) = value.previous() {
                    let key = Key::from(Field { first, last });
                    decoded.elements.insert(key, data);
                }
            }
            // nft begins a set with an end at the lowest value.
            (None, false) if value.previous().is_none() => {}
            (None, false) => {
                foreign.insert(value);
            }
            (Some((first, _)), true) => {
                foreign.insert(first);
                open = Some((value, data));
            }
        }
    }
    if let (Some((first, data)), [kind]) = (open, &set.key[..])
        && let Some(last) = kind.highest()
    {
        let key = Key::from(Field { first, last });
        decoded.elements.insert(key, data);
    }
    let texts = foreign.into_iter().map(|value| value.to_string());
    decoded.foreign.extend(texts.flat_map(String::into_bytes));
}

#[cfg(test)]
mod tests;
