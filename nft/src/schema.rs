//! The sets and maps of a table that a planner plans, with one row for each: its name, the
//! field of the plan, and how an entry of that is written. From the row come what the table
//! declares, what the set should hold, and what a change of the plan changes of it. Pure.
//!
//! A component lists its rows ([`row!`]) beside its rules, and says in which order the table
//! declares them ([`Schema`]). If entries have a family, a row is a set for each, named by a
//! digit at the end: `local_cidrs4`.
//!
//! None has a declared `size`, so the kernel makes them hash tables that grow and shrink
//! by themselves (`rhash`). A declared size would give a fixed table, full at its size
//! (`ENFILE`), and a set's size can only be changed by replacing the set with all its
//! elements while it is in use. A lookup costs about the same in both.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tweed_component::schema::Sets;
use tweed_core::family::Family;
use tweed_core::keyed::{Delta as KeyedDelta, Keyed};
use tweed_planner::policy::desired::Number;
use tweed_planner::policy::verdicts::Span;

use crate::element::{Change, Data, Element, ElementsDelta, Field, Key};
use crate::provider::Provider;
use crate::table::{DataType, KeptBy, Set};
use crate::value::{Type, Value};
use crate::words::digit;

/// How the keys of a field of the plan are written.
pub(crate) struct Keys<K> {
    /// The types of their fields: those of IPv4, where there is a set for each family.
    pub types: &'static [Type],
    /// Whether a field is a range of values.
    pub interval: bool,
    /// The family of the set that a key belongs to, where there is one for each.
    pub family: Option<fn(&K) -> Family>,
    /// The key as the set has it.
    pub key: fn(&K) -> Key,
}

/// One address.
pub(crate) const ADDRESS: Keys<IpAddr> = Keys {
    types: &[Type::Ipv4],
    interval: false,
    family: Some(|address| Family::of(*address)),
    key: |address| (*address).into(),
};

/// The same address twice, for a lookup of both ends of a packet.
pub(crate) const TWICE: Keys<IpAddr> = Keys {
    types: &[Type::Ipv4, Type::Ipv4],
    key: |address| [Field::from(*address); 2].into_iter().collect(),
    ..ADDRESS
};

/// A range of addresses.
pub(crate) const SPAN: Keys<Span> = Keys {
    types: &[Type::Ipv4],
    interval: true,
    family: Some(|span| Family::of(span.first)),
    key: |span| Field::span(span.first, span.last).into(),
};

/// A number of the planner.
pub(crate) const NUMBER: Keys<Number> = Keys {
    types: &[Type::Class],
    interval: false,
    family: None,
    key: |number| Value::Class(*number).into(),
};

/// How the values of a field of the plan are written, as data of a map.
pub(crate) struct Values<K, V> {
    /// The type of the data, with that of IPv4 for an address; none of a set.
    pub types: Option<&'static [Type]>,
    /// The family of the map that a value belongs to, where keys have none.
    pub family: Option<fn(&V) -> Family>,
    /// The data of an entry, or nothing of a set. None if it belongs to another set.
    pub data: fn(&K, &V) -> Option<Option<Box<Data>>>,
}

/// The types of verdicts, as [`Values::types`].
pub(crate) const VERDICT: Option<&[Type]> = Some(&[]);

/// Those of a set.
pub(crate) const fn nothing<K>() -> Values<K, ()> {
    Values {
        types: None,
        family: None,
        data: |_, ()| Some(None),
    }
}

/// A number of the planner.
pub(crate) const fn number<K>() -> Values<K, Number> {
    Values {
        types: Some(&[Type::Class]),
        family: None,
        data: |_, number| Some(class(*number)),
    }
}

/// A number as data.
pub(crate) fn class(number: Number) -> Option<Box<Data>> {
    Some(Box::new(Data::Value(Value::Class(number))))
}

/// A row: see [`row!`].
pub(crate) struct Row<D: Sets> {
    name: &'static str,
    key: &'static [Type],
    data: Option<&'static [Type]>,
    interval: bool,
    has_families: bool,
    elements: Elements<D>,
    change: fn(&D::Delta, Option<Family>) -> ElementsDelta,
}

type Elements<D> = for<'a> fn(&'a D, Option<Family>) -> Box<dyn Iterator<Item = Element> + 'a>;

/// The row of a field of the plan: its name in the kernel, the field, how keys and how values
/// are written.
macro_rules! row {
    ($name:expr => $($field:ident).+, $keys:expr, $values:expr) => {
        $crate::schema::Row::new(
            $name,
            &$keys,
            &$values,
            |desired, family| {
                $crate::schema::elements(&desired.$($field).+, family, $keys, $values)
            },
            |delta, family| $crate::schema::change(&delta.$($field).+, family, $keys, $values),
        )
    };
    // Of a set.
    ($name:expr => $($field:ident).+, $keys:expr) => {
        $crate::schema::row!($name => $($field).+, $keys, $crate::schema::nothing())
    };
}
pub(crate) use row;

impl<D: Sets> Row<D> {
    pub(crate) const fn new<K, V>(
        name: &'static str,
        keys: &Keys<K>,
        values: &Values<K, V>,
        elements: Elements<D>,
        change: fn(&D::Delta, Option<Family>) -> ElementsDelta,
    ) -> Self {
        Self {
            name,
            key: keys.types,
            data: values.types,
            interval: keys.interval,
            has_families: keys.family.is_some() || values.family.is_some(),
            elements,
            change,
        }
    }

    /// Its set, or that of each family.
    pub(crate) fn sets(&'static self) -> impl Iterator<Item = PlannedSet<D>> {
        let both = Family::BOTH.map(Some).into_iter();
        let one = (!self.has_families).then_some(None);
        let families = both.filter(|_| self.has_families).chain(one);
        families.map(|family| PlannedSet { row: self, family })
    }

    /// Its set of a family, or the only one.
    pub(crate) fn of(&'static self, family: impl Into<Option<Family>>) -> PlannedSet<D> {
        let family = family.into();
        PlannedSet { row: self, family }
    }
}

/// A set or map of a row.
pub(crate) struct PlannedSet<D: Sets + 'static> {
    row: &'static Row<D>,
    /// None if it is the only one of its row.
    family: Option<Family>,
}

/// What a component plans, as the sets and maps of its table.
pub(crate) trait Schema: Sets + Sized + 'static {
    /// Who keeps the elements.
    const KEPT_BY: KeptBy;

    /// All sets and maps, in the order in which the table declares them.
    fn sets() -> impl Iterator<Item = PlannedSet<Self>>;
}

impl<D: Schema> PlannedSet<D> {
    /// The name in the kernel.
    pub(crate) fn name(&self) -> String {
        let digit = self.family.map(|family| digit(family).to_string());
        format!("{}{}", self.row.name, digit.unwrap_or_default())
    }

    /// How the table declares it.
    pub(crate) fn declaration(&self) -> Set {
        let data = self.row.data.map(|types| match types {
            [] => DataType::Verdict,
            types => DataType::Values(self.types(types)),
        });
        Set {
            name: self.name(),
            key: self.types(self.row.key),
            data,
            interval: self.row.interval,
            kept_by: D::KEPT_BY,
        }
    }

    /// What it should hold, by ascending key.
    pub(crate) fn elements<'a>(&self, desired: &'a D) -> Box<dyn Iterator<Item = Element> + 'a> {
        (self.row.elements)(desired, self.family)
    }

    /// A key of it; none if its keys are not written in this way, or it is of the other family.
    pub(crate) fn key_of<K>(&self, keys: &Keys<K>, key: &K) -> Option<Key> {
        let is_in = self.row.key == keys.types && self.family == keys.family.map(|of| of(key));
        is_in.then(|| (keys.key)(key))
    }

    /// What `delta` changes of it.
    fn change(&self, delta: &D::Delta) -> Change {
        Change {
            set: self.name(),
            delta: (self.row.change)(delta, self.family),
        }
    }

    fn types(&self, types: &[Type]) -> Vec<Type> {
        let of_family = |kind: &Type| match (kind, self.family) {
            (Type::Ipv4, Some(Family::V6)) => Type::Ipv6,
            _ => *kind,
        };
        types.iter().map(of_family).collect()
    }
}

/// What a table declares for a plan.
pub(crate) fn declarations<D: Schema>() -> impl Iterator<Item = Set> {
    D::sets().map(|set| set.declaration())
}

/// What `delta` changes of all sets; sets that stay are left out.
pub(crate) fn changes<D: Schema>(delta: &D::Delta) -> Vec<Change> {
    D::sets()
        .map(|set| set.change(delta))
        .filter(|change| !change.delta.is_empty())
        .collect()
}

impl<D: Schema> Provider for D {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        match D::sets().find(|known| known.name() == set) {
            Some(known) => known.elements(self),
            None => Box::new(std::iter::empty()),
        }
    }
}

/// The elements of the set of a family, or of the only one, by ascending key.
pub(crate) fn elements<'a, M: Keyed>(
    map: &'a M,
    family: Option<Family>,
    keys: Keys<M::Key>,
    values: Values<M::Key, M::Value>,
) -> Box<dyn Iterator<Item = Element> + 'a> {
    let entries = map.entries();
    Box::new(entries.filter_map(move |entry| element(entry, family, &keys, &values)))
}

/// What `delta` changes of the set of a family, or of the only one.
pub(crate) fn change<K, V>(
    delta: &KeyedDelta<K, V>,
    family: Option<Family>,
    keys: Keys<K>,
    values: Values<K, V>,
) -> ElementsDelta {
    let elements = |entries: &BTreeMap<K, V>| {
        entries
            .iter()
            .filter_map(|entry| element(entry, family, &keys, &values))
            .collect()
    };
    ElementsDelta {
        removed: elements(&delta.removed),
        added: elements(&delta.added),
    }
}

/// The element of an entry; none if it belongs to another set.
fn element<K, V>(
    (key, value): (&K, &V),
    family: Option<Family>,
    keys: &Keys<K>,
    values: &Values<K, V>,
) -> Option<Element> {
    let of_key = keys.family.map(|of| of(key));
    let of_value = || values.family.map(|of| of(value));
    if of_key.or_else(of_value) != family {
        return None;
    }
    let data = (values.data)(key, value)?;
    Some(((keys.key)(key), data))
}

/// What the sets of a plan hold. Each is provided by ascending key, which the reconciler relies
/// on.
#[cfg(test)]
pub(crate) fn contents<D: Schema>(desired: &D) -> crate::element::Contents {
    let of_set = |set: PlannedSet<D>| {
        let elements: Vec<Element> = desired.elements(&set.name()).collect();
        assert!(elements.is_sorted_by(|(one, _), (next, _)| one < next));
        (set.name(), elements.into_iter().collect())
    };
    D::sets().map(of_set).collect()
}
