//! The keyed difference: what makes one state of another, key by key.
//!
//! Desired and actual state are maps from a key to a value, or sets, which are
//! maps without values. There is one mechanism for both questions asked of them:
//!
//! - [`compare`] walks two of them in step and says of each key whether it is
//!   in the first, in the second, or in both. A reconciler calls it with the
//!   actual and the desired state and writes what each entry calls for. The
//!   values may be of different types, so it decides itself whether two of them
//!   agree, and it can leave out by a filter what is not its own. Nothing is
//!   copied.
//! - [`diff`] gives the difference as data, a [`Delta`]: for a planner that
//!   hands on what has changed, or a writer that sends it in one transaction.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A key of two compared states, with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<K, A, B> {
    /// Only the first has the key.
    First(K, A),
    /// Only the second has the key.
    Second(K, B),
    /// Both have the key; the values may be equal or not.
    Both(K, A, B),
}

/// Every key of two states, in ascending order. Both are given in ascending
/// order without duplicates, as maps and sets are; a set is given with `()` for
/// each value.
pub fn compare<K: Ord, A, B>(
    first: impl IntoIterator<Item = (K, A)>,
    second: impl IntoIterator<Item = (K, B)>,
) -> impl Iterator<Item = Entry<K, A, B>> {
    let mut left = first.into_iter().peekable();
    let mut right = second.into_iter().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (_, None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => left.next().map(|(key, a)| Entry::First(key, a)),
            Ordering::Greater => right.next().map(|(key, b)| Entry::Second(key, b)),
            Ordering::Equal => {
                let ((key, a), (_, b)) = left.next().zip(right.next())?;
                Some(Entry::Both(key, a, b))
            }
        }
    })
}

/// The change that turns `old` into `new`.
pub fn diff<M: Keyed>(old: &M, new: &M) -> Delta<M::Key, M::Value> {
    let mut delta = Delta::default();
    for entry in compare(old.entries(), new.entries()) {
        let (key, was, is) = match entry {
            Entry::First(key, was) => (key, Some(was), None),
            Entry::Second(key, is) => (key, None, Some(is)),
            Entry::Both(_, was, is) if was == is => continue,
            Entry::Both(key, was, is) => (key, Some(was), Some(is)),
        };
        if let Some(was) = was {
            delta.removed.insert(key.clone(), was.clone());
        }
        if let Some(is) = is {
            delta.added.insert(key.clone(), is.clone());
        }
    }
    delta
}

/// The change that turns one state into another. A key in both maps gets another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta<K, V> {
    /// What the old state has and the new one has not, or not with this value.
    pub removed: BTreeMap<K, V>,
    /// What the new state has and the old one had not, or not with this value.
    pub added: BTreeMap<K, V>,
}

impl<K, V> Default for Delta<K, V> {
    fn default() -> Self {
        Self {
            removed: BTreeMap::new(),
            added: BTreeMap::new(),
        }
    }
}

impl<K: Ord, V: PartialEq> Delta<K, V> {
    /// Whether both states are the same.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// How many entries are removed and added; a changed value counts twice.
    pub fn len(&self) -> usize {
        self.removed.len() + self.added.len()
    }

    /// Appends `next`, which starts from the state that this one ends in: what
    /// is removed again, or put back as it was, is in neither map afterwards.
    pub fn extend(&mut self, next: Self) {
        let (removed, added) = (next.removed.into_iter(), next.added.into_iter());
        removed.for_each(|(key, value)| self.remove(key, value));
        added.for_each(|(key, value)| self.add(key, value));
    }

    /// Appends that `key` loses its value.
    pub fn remove(&mut self, key: K, value: V) {
        if self.added.remove(&key).is_none() {
            self.removed.insert(key, value);
        }
    }

    /// Appends that `key`, which has no value, gets one.
    pub fn add(&mut self, key: K, value: V) {
        if self.removed.get(&key) == Some(&value) {
            self.removed.remove(&key);
        } else {
            self.added.insert(key, value);
        }
    }

    /// Whether `state` is one that this delta starts from: it has all that is
    /// removed, and nothing under a key that is added without being removed.
    pub fn starts_from(&self, state: &impl Keyed<Key = K, Value = V>) -> bool {
        let free = |key: &K| self.removed.contains_key(key) || state.get(key).is_none();
        self.removed
            .iter()
            .all(|(key, value)| state.get(key) == Some(value))
            && self.added.keys().all(free)
    }
}

impl<K: Ord + Clone, V: Clone> Delta<K, V> {
    /// Makes the new state of the old one.
    pub fn apply(&self, state: &mut impl Keyed<Key = K, Value = V>) {
        for key in self.removed.keys() {
            state.remove(key);
        }
        for (key, value) in &self.added {
            state.insert(key.clone(), value.clone());
        }
    }
}

/// A map, or a set, which is a map without values.
pub trait Keyed {
    /// What tells entries apart.
    type Key: Ord + Clone;
    /// What an entry has beside its key; `()` for a set.
    type Value: PartialEq + Clone;

    /// How many entries there are.
    fn count(&self) -> usize;
    /// The entries by ascending key.
    fn entries(&self) -> impl Iterator<Item = (&Self::Key, &Self::Value)>;
    /// The value under `key`.
    fn get(&self, key: &Self::Key) -> Option<&Self::Value>;
    /// Puts `value` under `key`, in place of what was there.
    fn insert(&mut self, key: Self::Key, value: Self::Value);
    /// Takes out what is under `key`, if anything is.
    fn remove(&mut self, key: &Self::Key);
}

impl<K: Ord + Clone, V: PartialEq + Clone> Keyed for BTreeMap<K, V> {
    type Key = K;
    type Value = V;

    fn count(&self) -> usize {
        self.len()
    }

    fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.iter()
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn insert(&mut self, key: K, value: V) {
        self.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.remove(key);
    }
}

impl<K: Ord + Clone> Keyed for BTreeSet<K> {
    type Key = K;
    type Value = ();

    fn count(&self) -> usize {
        self.len()
    }

    fn entries(&self) -> impl Iterator<Item = (&K, &())> {
        self.iter().map(|key| (key, &()))
    }

    fn get(&self, key: &K) -> Option<&()> {
        self.contains(key).then_some(&())
    }

    fn insert(&mut self, key: K, (): ()) {
        self.insert(key);
    }

    fn remove(&mut self, key: &K) {
        self.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    use super::*;

    type Map = BTreeMap<u8, u8>;

    fn map() -> impl Strategy<Value = Map> {
        btree_map(0..8_u8, 0..3_u8, 0..8)
    }

    #[test]
    fn entries_are_told_apart_by_where_they_are() {
        let (first, second) = (Map::from([(1, 1), (2, 2)]), Map::from([(2, 3), (4, 4)]));
        let entries: Vec<_> = compare(&first, &second).collect();
        assert_eq!(
            entries,
            [
                Entry::First(&1, &1),
                Entry::Both(&2, &2, &3),
                Entry::Second(&4, &4)
            ]
        );
    }

    proptest! {
        #[test]
        fn the_difference_makes_new_of_old_and_is_as_small_as_it_can_be(old in map(), new in map()) {
            let delta = diff(&old, &new);
            prop_assert!(delta.starts_from(&old));
            prop_assert_eq!(delta.starts_from(&new), delta.is_empty());
            let mut state = old.clone();
            delta.apply(&mut state);
            prop_assert_eq!(&state, &new);
            prop_assert_eq!(delta.is_empty(), old == new);
            for (key, value) in &delta.removed {
                prop_assert_ne!(delta.added.get(key), Some(value));
            }
        }

        #[test]
        fn two_differences_in_a_row_are_one(a in map(), b in map(), c in map()) {
            let mut delta = diff(&a, &b);
            delta.extend(diff(&b, &c));
            prop_assert_eq!(delta, diff(&a, &c));
        }

        #[test]
        fn a_set_is_a_map_without_values(
            old in btree_set(0..8_u8, 0..8),
            new in btree_set(0..8_u8, 0..8),
        ) {
            let delta = diff(&old, &new);
            let removed: BTreeSet<u8> = delta.removed.keys().copied().collect();
            let added: BTreeSet<u8> = delta.added.keys().copied().collect();
            prop_assert_eq!(removed, &old - &new);
            prop_assert_eq!(added, &new - &old);
            prop_assert_eq!(delta.len(), delta.removed.len() + delta.added.len());
            let mut state = old;
            delta.apply(&mut state);
            prop_assert_eq!(state, new);
        }
    }
}
