//! The planner's typed maps as elements of sets and maps. Pure.

use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_core::keyed::{Delta as KeyedDelta, Keyed};
use tweed_planner::policy::desired::Span;

use crate::element::{Data, Element, ElementsDelta, Field, Key};
use crate::value::Value;

/// The digit of a family at the end of a name.
pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

/// A key as the set has it, and the family of the set that it belongs to; none if there
/// is one set for both.
pub(crate) type Encode<K> = fn(&K) -> (Option<Family>, Key);

/// One address.
pub(crate) fn address(address: &IpAddr) -> (Option<Family>, Key) {
    (Some(Family::of(*address)), (*address).into())
}

/// The same address twice, for a lookup of both ends of a packet.
pub(crate) fn twice(address: &IpAddr) -> (Option<Family>, Key) {
    let fields = [Field::from(*address); 2];
    (Some(Family::of(*address)), fields.into_iter().collect())
}

/// A range of addresses.
pub(crate) fn span(span: &Span) -> (Option<Family>, Key) {
    let field = Field::span(span.first, span.last);
    (Some(Family::of(span.first)), field.into())
}

/// A value of the planner's maps as data of an element.
pub(crate) trait AsData {
    /// What the element has beside its key.
    fn data(&self) -> Option<Box<Data>>;
}

impl AsData for () {
    fn data(&self) -> Option<Box<Data>> {
        None
    }
}

impl AsData for u32 {
    fn data(&self) -> Option<Box<Data>> {
        Some(Box::new(Data::Value(Value::Class(*self))))
    }
}

/// The elements of the set of a family, or of the one for both, by ascending key.
pub(crate) fn elements<M>(
    entries: &M,
    family: impl Into<Option<Family>>,
    encode: Encode<M::Key>,
) -> Box<dyn Iterator<Item = Element> + '_>
where
    M: Keyed,
    M::Value: AsData,
{
    elements_by(entries, of_family(family.into(), encode))
}

/// What `delta` changes of the set of a family, or of the one for both.
pub(crate) fn change<K: Ord + Clone, V: AsData + PartialEq + Clone>(
    delta: &KeyedDelta<K, V>,
    family: impl Into<Option<Family>>,
    encode: Encode<K>,
) -> ElementsDelta {
    change_by(delta, of_family(family.into(), encode))
}

fn of_family<K, V: AsData>(
    family: Option<Family>,
    encode: Encode<K>,
) -> impl Fn(&K, &V) -> Option<Element> {
    move |key, value| {
        let (of, key) = encode(key);
        (of == family).then(|| (key, value.data()))
    }
}

/// The elements that `encode` makes of entries, by ascending key; it gives none for what
/// belongs to another set.
pub(crate) fn elements_by<'a, M: Keyed>(
    entries: &'a M,
    encode: impl Fn(&M::Key, &M::Value) -> Option<Element> + 'a,
) -> Box<dyn Iterator<Item = Element> + 'a> {
    let entries = entries.entries();
    Box::new(entries.filter_map(move |(key, value)| encode(key, value)))
}

/// What `delta` changes of the elements that `encode` makes.
pub(crate) fn change_by<K: Ord + Clone, V: PartialEq + Clone>(
    delta: &KeyedDelta<K, V>,
    encode: impl Fn(&K, &V) -> Option<Element>,
) -> ElementsDelta {
    ElementsDelta {
        removed: elements_by(&delta.removed, &encode).collect(),
        added: elements_by(&delta.added, &encode).collect(),
    }
}
