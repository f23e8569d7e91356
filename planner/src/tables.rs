//! Tables of desired elements that write down what changes in them.

use tweed_component::schema::Sets;
use tweed_core::keyed::{Delta as KeyedDelta, Keyed};

/// What should be, which somebody else keeps, while it is changed.
pub struct Changing<'a, D: Sets> {
    /// What should be.
    pub desired: &'a mut D,
    /// What has changed; not written down while everything is new.
    pub delta: Option<D::Delta>,
}

impl<'a, D: Sets> Changing<'a, D> {
    /// A change begins; it is not `written_down` where everything is new.
    pub fn of(desired: &'a mut D, written_down: bool) -> Self {
        let delta = written_down.then(D::Delta::default);
        Self { desired, delta }
    }
}

/// Puts a value under a key of a table, or nothing, and writes the change down:
/// `put!(tables, name of the field, key, value)`.
macro_rules! put {
    ($tables:expr, $($field:ident).+, $key:expr, $value:expr) => {
        $crate::tables::put_into(
            &mut $tables.desired.$($field).+,
            $tables.delta.as_mut().map(|delta| &mut delta.$($field).+),
            $key,
            $value,
        )
    };
}
pub(crate) use put;

/// Makes a table hold these keys and values, and writes the change down.
macro_rules! replace {
    ($tables:expr, $($field:ident).+, $new:expr) => {{
        let change = tweed_core::keyed::diff(&$tables.desired.$($field).+, &$new);
        change.apply(&mut $tables.desired.$($field).+);
        if let Some(delta) = &mut $tables.delta {
            delta.$($field).+.extend(change);
        }
    }};
}
pub(crate) use replace;

/// Puts a value under a key, or nothing, and writes the change down: for a field that [`put!`]
/// cannot name.
pub fn put_into<M: Keyed>(
    map: &mut M,
    delta: Option<&mut KeyedDelta<M::Key, M::Value>>,
    key: M::Key,
    value: Option<M::Value>,
) {
    let old = map.get(&key).cloned();
    if old == value {
        return;
    }
    if let Some(delta) = delta {
        if let Some(old) = old {
            delta.remove(key.clone(), old);
        }
        if let Some(new) = &value {
            delta.add(key.clone(), new.clone());
        }
    }
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

/// The value under a key before the change that `delta` describes.
pub fn before<'a, M: Keyed>(
    map: &'a M,
    delta: &'a KeyedDelta<M::Key, M::Value>,
    key: &M::Key,
) -> Option<&'a M::Value> {
    match delta.removed.get(key) {
        Some(was) => Some(was),
        None if delta.added.contains_key(key) => None,
        None => map.get(key),
    }
}
