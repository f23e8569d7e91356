//! Members of a set that several Services contribute to.

use std::collections::BTreeMap;

use tweed_core::keyed::{Entry, compare};

/// How many contribute each member.
#[derive(Debug)]
pub struct Counted<K>(BTreeMap<K, usize>);

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Counted<K> {
    /// One Service contributes `new` where it contributed `old`. The members that have
    /// come into the set by it (true) or gone (false).
    pub fn exchange<'a>(
        &mut self,
        old: impl IntoIterator<Item = &'a K>,
        new: impl IntoIterator<Item = &'a K>,
    ) -> BTreeMap<K, bool>
    where
        K: 'a,
    {
        let mut changed = BTreeMap::new();
        for key in new {
            let count = self.0.entry(*key).or_default();
            *count += 1;
            if *count == 1 {
                changed.insert(*key, true);
            }
        }
        for key in old {
            let Some(count) = self.0.get_mut(key) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
                changed.insert(*key, false);
            }
        }
        changed
    }

    /// As [`Counted::exchange`], of members in ascending order of which most stay.
    pub fn exchange_sorted<'a>(&mut self, old: &'a [K], new: &'a [K]) -> BTreeMap<K, bool> {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let [old, new] = [old, new].map(|keys| keys.iter().map(|key| (key, ())));
        for entry in compare(old, new) {
            match entry {
                Entry::First(key, ()) => gone.push(key),
                Entry::Second(key, ()) => come.push(key),
                Entry::Both(..) => {}
            }
        }
        self.exchange(gone, come)
    }

    /// The members.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}
