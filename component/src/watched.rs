//! The result of the events of one watch, whatever is kept of its objects: the same for every
//! store.
//!
//! What always holds:
//! - nothing counts before the end of the first list;
//! - a list that does not end changes nothing; one that ends replaces everything.

use std::collections::BTreeMap;

use tweed_core::object::{Event, Object, ObjectKey};

/// The list and the completeness of one watch, of whose objects `V` is kept under `K`.
#[derive(Debug)]
pub struct Watched<K, V> {
    complete: bool,
    /// The list that is under way.
    listing: Option<BTreeMap<K, V>>,
}

impl<K, V> Default for Watched<K, V> {
    /// A watch before the first event.
    fn default() -> Self {
        Self {
            complete: false,
            listing: None,
        }
    }
}

/// What an event calls for.
#[derive(Debug)]
pub enum Change<K, V> {
    /// It changes no object.
    Nothing,
    /// These are all that there are.
    Replace {
        /// What is kept of them.
        all: BTreeMap<K, V>,
        /// Whether it was not known before what there is.
        is_first: bool,
    },
    /// One is this, or is gone.
    Set(K, Option<V>),
}

impl<K: Ord + Clone, V: Clone> Watched<K, V> {
    /// Takes an event in. `read` gives what is kept of an object, `None` if nothing is.
    pub fn apply<T: Object>(
        &mut self,
        event: Event<T>,
        key: impl Fn(ObjectKey) -> K,
        read: impl FnOnce(T) -> Option<V>,
    ) -> Change<K, V> {
        let (key, value) = match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                return Change::Nothing;
            }
            Event::InitApply(object) => {
                let key = key(object.key());
                if let (Some(listing), Some(value)) = (&mut self.listing, read(object)) {
                    listing.insert(key, value);
                }
                return Change::Nothing;
            }
            Event::InitDone => {
                let Some(listed) = self.listing.take() else {
                    return Change::Nothing;
                };
                let is_first = !std::mem::replace(&mut self.complete, true);
                // A list comes by ascending key, which leaves the nodes of a tree half empty.
                // Made of all objects at once they are full.
                let all = listed.into_iter().collect();
                return Change::Replace { all, is_first };
            }
            Event::Apply(object) => (key(object.key()), read(object)),
            Event::Delete(deleted) => (key(deleted), None),
            Event::Absent(_) | Event::Lost(_) | Event::Restored => return Change::Nothing,
        };
        if let Some(listing) = &mut self.listing {
            match &value {
                Some(value) => drop(listing.insert(key.clone(), value.clone())),
                None => drop(listing.remove(&key)),
            }
        }
        if self.complete {
            Change::Set(key, value)
        } else {
            Change::Nothing
        }
    }

    /// Whether a list has ended: before that it is not known what there is.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The list that is under way: all that there will be if [`Event::InitDone`] is next.
    pub fn listing(&self) -> Option<&BTreeMap<K, V>> {
        self.listing.as_ref()
    }
}
