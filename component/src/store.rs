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

use crate::watched::{Change, Watched};

/// Objects of one kind by their key.
pub type Objects<T> = BTreeMap<ObjectKey, T>;

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
    watched: Watched<ObjectKey, T>,
    /// Why the source cannot be read.
    lost: Option<String>,
    version: Version,
    touched: Touched<T>,
}

impl<T> Default for Store<T> {
    /// A store before the first event.
    fn default() -> Self {
        Self {
            objects: Objects::new(),
            watched: Watched::default(),
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
            // Successive attempts may fail for different reasons; each is
            // worth a line in the log, so each is a change.
            Event::Lost(Loss { reason, .. }) => {
                let reason = Some(reason);
                std::mem::replace(&mut self.lost, reason.clone()) != reason
            }
            Event::Restored => self.lost.take().is_some(),
            event => match self.watched.apply(event, |key| key, Some) {
                Change::Nothing => false,
                Change::Replace { all, is_first } => self.replace(all, is_first),
                Change::Set(key, Some(object)) => self.set(key, object),
                Change::Set(key, None) => self.remove(key),
            },
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
        self.watched.is_complete()
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
        self.watched.listing()
    }

    /// Which objects have changed since this was last asked: the first time any
    /// of them.
    pub fn take_touched(&mut self) -> Touched<T> {
        std::mem::take(&mut self.touched)
    }

    fn replace(&mut self, objects: Objects<T>, is_first: bool) -> bool {
        if !is_first && self.objects == objects {
            return false;
        }
        self.objects = objects;
        self.touched = Touched::Everything;
        true
    }

    fn set(&mut self, key: ObjectKey, object: T) -> bool {
        if self.objects.get(&key) == Some(&object) {
            return false;
        }
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
