//! What sets and maps hold, and the difference between two states of it. Pure;
//! `codec` has the elements as the kernel's bytes.

use std::collections::{BTreeMap, HashSet};
use std::{fmt, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::keyed::{self, Delta, Entry, compare};
use tweed_netlink::nf::verdict::Verdict;

use crate::value::Value;

/// One field of a key: every value from `first` to `last`, both included. The two
/// are equal in sets without intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Lowest value.
    pub first: Value,
    /// Highest value, of the same type.
    pub last: Value,
}

impl Field {
    /// All addresses from one to another of its family.
    #[inline(never)]
    pub fn span(first: IpAddr, last: IpAddr) -> Self {
        Self::new(Value::Address(first), Value::Address(last))
    }

    /// All values from one to another.
    ///
    /// What makes a field is never inlined: where rustc 1.95 inlines it into the iterators over the
    /// planner's maps, with `opt-level = "s"` and LTO, the tags of `last` are not written. Keys that
    /// are equal then differ, and whoever matches on `last` jumps to nowhere.
    #[inline(never)]
    pub(crate) fn new(first: Value, last: Value) -> Self {
        Self { first, last }
    }
}

impl From<Value> for Field {
    fn from(value: Value) -> Self {
        Self::new(value, value)
    }
}

impl From<IpAddr> for Field {
    fn from(address: IpAddr) -> Self {
        Value::Address(address).into()
    }
}

impl From<IpNetwork> for Field {
    fn from(network: IpNetwork) -> Self {
        Self::span(network.network(), network.broadcast())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.first != self.last {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

/// The key of an element: one field, or several for a concatenated key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Fields);

/// One field, which nearly all keys have, costs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fields {
    One(Field),
    Many(Box<[Field]>),
}

impl Key {
    /// Of fields of one value each.
    pub fn of<const N: usize>(values: [Value; N]) -> Self {
        values.into_iter().map(Field::from).collect()
    }

    /// The fields in their order.
    pub fn fields(&self) -> &[Field] {
        match &self.0 {
            Fields::One(field) => std::slice::from_ref(field),
            Fields::Many(fields) => fields,
        }
    }
}

impl<F: Into<Field>> From<F> for Key {
    fn from(field: F) -> Self {
        Self(Fields::One(field.into()))
    }
}

impl FromIterator<Field> for Key {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        let fields: Vec<Field> = fields.into_iter().collect();
        match fields[..] {
            [field] => field.into(),
            _ => Self(Fields::Many(fields.into())),
        }
    }
}

impl fmt::Display for Key {
    /// As `nft` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        concatenate(self.fields(), f)
    }
}

/// What a map gives for a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Data {
    /// A verdict map's.
    Verdict(Verdict),
    /// A data map's: one value, which most maps have and which costs no allocation.
    Value(Value),
    /// A data map's: several values that are concatenated.
    Values(Box<[Value]>),
}

impl Data {
    /// The values of a data map's.
    pub fn values(&self) -> Option<&[Value]> {
        match self {
            Self::Verdict(_) => None,
            Self::Value(value) => Some(std::slice::from_ref(value)),
            Self::Values(values) => Some(values),
        }
    }
}

impl From<Vec<Value>> for Data {
    fn from(values: Vec<Value>) -> Self {
        match values[..] {
            [value] => Self::Value(value),
            _ => Self::Values(values.into()),
        }
    }
}

impl fmt::Display for Data {
    /// As `nft` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => write!(f, "{verdict}"),
            Self::Value(value) => write!(f, "{value}"),
            Self::Values(values) => concatenate(values, f),
        }
    }
}

fn concatenate(parts: &[impl fmt::Display], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, part) in parts.iter().enumerate() {
        let between = if place == 0 { "" } else { " . " };
        write!(f, "{between}{part}")?;
    }
    Ok(())
}

/// The elements of one set or map: its keys, and a map's data for each. Boxed, so
/// that the elements of sets, of which a node has thousands, stay small.
pub type Elements = BTreeMap<Key, Option<Box<Data>>>;

/// What the sets and maps of a table hold, by their names; the empty ones are there
/// too.
pub type Contents = BTreeMap<String, Elements>;

/// An element: its key, and a map's data.
pub type Element = (Key, Option<Box<Data>>);

/// What one set or map needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The name of the set or map.
    pub set: String,
    /// Its elements.
    pub delta: ElementsDelta,
}

/// Elements to remove and to add; a key in both gets other data. Lists and no maps, since
/// they are only written, and a first load has hundreds of thousands of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementsDelta {
    /// What is removed, by ascending key.
    pub removed: Vec<Element>,
    /// What is added, by ascending key.
    pub added: Vec<Element>,
}

impl From<Delta<Key, Option<Box<Data>>>> for ElementsDelta {
    fn from(delta: Delta<Key, Option<Box<Data>>>) -> Self {
        Self {
            removed: delta.removed.into_iter().collect(),
            added: delta.added.into_iter().collect(),
        }
    }
}

impl ElementsDelta {
    /// What turns `actual` into `desired`, both by ascending key.
    pub fn between(
        actual: impl IntoIterator<Item = Element>,
        desired: impl IntoIterator<Item = Element>,
    ) -> Self {
        let mut delta = Self::default();
        for entry in compare(actual, desired) {
            match entry {
                Entry::First(key, was) => delta.removed.push((key, was)),
                Entry::Second(key, is) => delta.added.push((key, is)),
                Entry::Both(_, was, is) if was == is => {}
                Entry::Both(key, was, is) => {
                    delta.removed.push((key.clone(), was));
                    delta.added.push((key, is));
                }
            }
        }
        delta
    }

    /// Whether nothing is removed and nothing is added.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// How many elements are removed and added; other data counts twice.
    pub fn len(&self) -> usize {
        self.removed.len() + self.added.len()
    }

    /// Makes the new elements of the old ones.
    fn apply(&self, elements: &mut Elements) {
        for (key, _) in &self.removed {
            elements.remove(key);
        }
        elements.extend(self.added.iter().cloned());
    }
}

impl Change {
    /// What turns `actual` into `desired`; none if they are the same.
    pub fn between(set: &str, actual: &Elements, desired: &Elements) -> Option<Self> {
        let delta = ElementsDelta::from(keyed::diff(actual, desired));
        (!delta.is_empty()).then(|| Self {
            set: set.to_owned(),
            delta,
        })
    }
}

/// The change that turns `actual` into `desired`; what needs nothing is left out.
pub fn diff(actual: &Contents, desired: &Contents) -> Vec<Change> {
    let none = Elements::new();
    let changes = desired.iter().filter_map(|(set, desired)| {
        Change::between(set, actual.get(set).unwrap_or(&none), desired)
    });
    changes.collect()
}

/// Makes the new contents of the old ones.
pub fn apply(contents: &mut Contents, changes: &[Change]) {
    for change in changes {
        if let Some(elements) = contents.get_mut(&change.set) {
            change.delta.apply(elements);
        }
    }
}

/// How many elements `changes` remove and add.
pub fn count(changes: &[Change]) -> usize {
    changes.iter().map(|change| change.delta.len()).sum()
}

/// How many of `changes` are not in `others`.
pub fn count_beyond(changes: &[Change], others: &[Change]) -> usize {
    let none = ElementsDelta::default();
    let beyond = |ours: &[Element], theirs: &[Element]| {
        let theirs: HashSet<&Element> = theirs.iter().collect();
        ours.iter().filter(|one| !theirs.contains(one)).count()
    };
    changes
        .iter()
        .map(|change| {
            let of_set = others.iter().find(|other| other.set == change.set);
            let other = of_set.map_or(&none, |other| &other.delta);
            beyond(&change.delta.removed, &other.removed)
                + beyond(&change.delta.added, &other.added)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(number: u32) -> Option<Box<Data>> {
        Some(Box::new(Data::Value(Value::Class(number))))
    }

    #[test]
    fn a_map_s_other_data_is_a_removal_and_an_addition() {
        let key = Key::from(Field::from(Value::Port(80)));
        let contents =
            |number| Contents::from([("m".to_owned(), [(key.clone(), data(number))].into())]);
        let changes = diff(&contents(1), &contents(2));
        assert_eq!(count(&changes), 2);
        assert_eq!(changes[0].delta.removed, [(key.clone(), data(1))]);
        assert_eq!(changes[0].delta.added, [(key.clone(), data(2))]);
        let mut after = contents(1);
        apply(&mut after, &changes);
        assert_eq!(after, contents(2));
        assert_eq!(count_beyond(&changes, &changes), 0);
        assert_eq!(count_beyond(&changes, &diff(&contents(1), &contents(3))), 1);
    }

    #[test]
    fn text_is_what_nft_reads() {
        let field = |first, last| Field {
            first: Value::Port(first),
            last: Value::Port(last),
        };
        let address = Field::from("10.0.0.0/24".parse::<IpNetwork>().unwrap());
        let key: Key = [address, Value::Protocol(6).into(), field(80, 90)]
            .into_iter()
            .collect();
        assert_eq!(key.to_string(), "10.0.0.0-10.0.0.255 . 6 . 80-90");
        let values = vec![Value::Address("::1".parse().unwrap()), Value::Class(7)];
        assert_eq!(Data::from(values).to_string(), "::1 . 0x00000007");
        let goto = Data::Verdict(Verdict::Goto("x".to_owned()));
        assert_eq!(goto.to_string(), "goto x");
    }
}
