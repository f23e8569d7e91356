//! The objects of one kind as a watch has described them so far: a synchronous
//! state machine over [`Event`]s, the same for every kind.
//!
//! What always holds:
//! - a store is complete from the end of the first list on, and holds nothing
//!   before that;
//! - a list that does not end changes nothing; one that ends replaces
//!   everything;
//! - an object that comes again without a change (a heartbeat) costs one
//!   comparison, and leaves [`Store::version`] as it is.

use std::collections::BTreeMap;

use tweed_core::object::{Event, Loss, Object, ObjectKey};
use tweed_core::version::Version;

/// Objects of one kind by their key. Names are grouped by namespace, so that
/// objects of a kind without namespaces need no memory for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects<T>(BTreeMap<String, BTreeMap<String, T>>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Object> FromIterator<T> for Objects<T> {
    fn from_iter<I: IntoIterator<Item = T>>(objects: I) -> Self {
        let mut all = Self::default();
        for object in objects {
            all.insert(object.key(), object);
        }
        all
    }
}

impl<T> Objects<T> {
    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.find(&key.namespace, &key.name)
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As [`Objects::get`], without a key to be allocated.
    fn find(&self, namespace: &str, name: &str) -> Option<&T> {
        self.0.get(namespace)?.get(name)
    }

    fn insert(&mut self, key: ObjectKey, object: T) -> Option<T> {
        let names = self.0.entry(key.namespace).or_default();
        names.insert(key.name, object)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<T> {
        let names = self.0.get_mut(&key.namespace)?;
        let was = names.remove(&key.name);
        if names.is_empty() {
            self.0.remove(&key.namespace);
        }
        was
    }
}

/// How many objects are remembered one by one as touched. Beyond this number a
/// planner plans for all of them, which then costs less than one after the other.
const MAX_TOUCHED: usize = 64;

/// Which objects may differ from when this was last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched<T> {
    /// These objects, each as it was then; none if it was not there.
    Objects(BTreeMap<ObjectKey, Option<T>>),
    /// Any of them.
    Everything,
}

impl<T> Default for Touched<T> {
    /// No object.
    fn default() -> Self {
        Self::Objects(BTreeMap::new())
    }
}

impl<T> Touched<T> {
    fn add(&mut self, key: ObjectKey, was: Option<T>) {
        if let Self::Objects(objects) = self {
            objects.entry(key).or_insert(was);
            if objects.len() > MAX_TOUCHED {
                *self = Self::Everything;
            }
        }
    }
}

/// The objects of one kind, as far as its watch has described them.
#[derive(Debug)]
pub struct Store<T> {
    objects: Objects<T>,
    /// The list that is under way.
    listing: Option<Objects<T>>,
    complete: bool,
    /// Why the source cannot be read.
    lost: Option<String>,
    version: Version,
    touched: Touched<T>,
}

impl<T> Default for Store<T> {
    /// A store before the first event.
    fn default() -> Self {
        Self {
            objects: Objects::default(),
            listing: None,
            complete: false,
            lost: None,
            version: Version::default(),
            touched: Touched::Everything,
        }
    }
}

impl<T: Object> Store<T> {
    /// Takes one event in. True if the objects, [`Store::is_complete`] or
    /// [`Store::lost`] changed by it.
    #[must_use = "a change calls for a new plan"]
    pub fn apply(&mut self, event: Event<T>) -> bool {
        let changed = match event {
            Event::Init => {
                self.listing = Some(Objects::default());
                false
            }
            Event::InitApply(object) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(object.key(), object);
                }
                false
            }
            Event::InitDone => match self.listing.take() {
                Some(objects) => self.replace(objects),
                None => false,
            },
            Event::Apply(object) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(object.key(), object.clone());
                }
                self.set(object)
            }
            Event::Delete(key) => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&key);
                }
                self.remove(key)
            }
            // Successive attempts may fail for different reasons; each is
            // worth a line in the log, so each is a change.
            Event::Lost(Loss { reason, .. }) if self.lost.as_ref() == Some(&reason) => false,
            Event::Lost(Loss { reason, .. }) => {
                self.lost = Some(reason);
                true
            }
            Event::Restored => self.lost.take().is_some(),
            Event::Absent(_) => false,
        };
        if changed {
            self.version.bump();
        }
        changed
    }

    /// Changes whenever [`Store::apply`] answers true.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether a list has ended: before that the objects are unknown, and
    /// nothing may be removed because it is not among them.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Why the source cannot be read, while it cannot be read.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The objects; none before [`Store::is_complete`].
    pub fn objects(&self) -> &Objects<T> {
        &self.objects
    }

    /// The objects of the list that is under way: those that the store will
    /// hold if [`Event::InitDone`] is next.
    pub fn listing(&self) -> Option<&Objects<T>> {
        self.listing.as_ref()
    }

    /// Which objects have changed since this was last asked: the first time any
    /// of them.
    pub fn take_touched(&mut self) -> Touched<T> {
        std::mem::take(&mut self.touched)
    }

    fn replace(&mut self, objects: Objects<T>) -> bool {
        if self.complete && self.objects == objects {
            return false;
        }
        self.complete = true;
        self.objects = objects;
        self.touched = Touched::Everything;
        true
    }

    fn set(&mut self, object: T) -> bool {
        let known = self.objects.find(object.namespace(), object.name());
        if !self.complete || known == Some(&object) {
            return false;
        }
        let key = object.key();
        let was = self.objects.insert(key.clone(), object);
        self.touched.add(key, was);
        true
    }

    fn remove(&mut self, key: ObjectKey) -> bool {
        let was = self.objects.remove(&key);
        let changed = was.is_some();
        if changed {
            self.touched.add(key, was);
        }
        changed
    }
}

#[cfg(test)]
mod tests;
