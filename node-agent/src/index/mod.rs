//! What the sources have said of the objects of a component, as far as its planner has taken
//! it in, and which of the sources can be read: the same for every component.
//!
//! How data goes through: [`crate::sources`] gives each event, with the [`Collection`] that
//! it is of, to the [`Index`] of its component in [`crate::state`]. The index passes it on to
//! the planner and remembers what it says of the source. [`crate::reconcile`] has the planner
//! plan.

pub mod policy;
pub mod services;
mod source;

use std::collections::BTreeMap;
use std::{fmt, mem};

use tweed_core::object::{Event, Loss};
use tweed_core::problem::{Problem, ProblemKind};

use source::SourceState;

pub use policy::PolicyIndex;
pub use services::ServiceIndex;

/// Objects that one source delivers to a component.
pub trait Collection: fmt::Display + Clone + Ord + Send + 'static {
    /// What plans with them.
    type Planner: Send;

    /// Those without which it is not known what there is to plan for.
    const NEEDED: &'static [Self];
    /// The problem that one cannot be read because the API server forbids it.
    const FORBIDDEN: ProblemKind;
    /// The problem that one cannot be read for any other reason.
    const UNREADABLE: ProblemKind;

    /// What follows from the server not having these objects: the end of a sentence.
    fn without(&self) -> &'static str {
        ""
    }
}

/// A kind of objects that the planner of a component takes in.
pub trait Input<C: Collection>: Sized {
    /// Gives `planner` an event of `collection`, and says whether anything changed.
    fn apply(planner: &mut C::Planner, collection: &C, event: Event<Self>) -> bool;
}

/// The planner of a component with the objects that it knows, and the state of their
/// sources.
#[derive(Debug)]
pub struct Index<C: Collection> {
    /// Holds the objects, in the form that it needs.
    pub planner: C::Planner,
    sources: BTreeMap<C, SourceState>,
    /// Whether anything has changed since [`Index::take_changed`].
    changed: bool,
}

impl<C: Collection> Index<C> {
    /// The index before any event.
    pub fn of(planner: C::Planner) -> Self {
        Self {
            planner,
            sources: BTreeMap::new(),
            changed: true,
        }
    }

    /// Takes in an event of `collection`. Says whether anything changed by it: the
    /// objects, or the state of the source.
    pub fn apply<T: Input<C>>(&mut self, collection: &C, event: Event<T>) -> bool {
        let source = self.sources.entry(collection.clone()).or_default();
        let of_source = source.apply(&event);
        let of_objects = T::apply(&mut self.planner, collection, event);
        self.note(of_source || of_objects)
    }

    /// The inputs of the plan have `changed`, or not.
    fn note(&mut self, changed: bool) -> bool {
        self.changed |= changed;
        changed
    }

    /// Whether the sources of all that is needed have listed it or said that they cannot.
    pub fn has_reported(&self) -> bool {
        let has = |one: &C| {
            let source = self.sources.get(one);
            source.is_some_and(SourceState::has_reported)
        };
        C::NEEDED.iter().all(has)
    }

    /// Whether any source cannot be read: then a list that is missing may never come.
    pub fn any_lost(&self) -> bool {
        self.sources.values().any(|source| source.lost.is_some())
    }

    /// The planner has not taken up all that has changed.
    pub fn put_back(&mut self) {
        self.changed = true;
    }

    /// Whether anything has changed since [`Index::take_changed`].
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether anything has changed since this was last called.
    pub fn take_changed(&mut self) -> bool {
        mem::take(&mut self.changed)
    }

    /// A problem for each source that cannot be read, and whether what is needed may be
    /// missing for it: it was never listed.
    pub fn unreadable(&self) -> impl Iterator<Item = (bool, Problem)> {
        self.sources.iter().filter_map(|(collection, source)| {
            let Loss { reason, forbidden } = source.lost.as_ref()?;
            let kind = if *forbidden {
                C::FORBIDDEN
            } else {
                C::UNREADABLE
            };
            let text = format!("the {collection} cannot be read: {reason}");
            let is_missing = !source.listed && C::NEEDED.contains(collection);
            Some((is_missing, Problem::new(kind, collection.to_string(), text)))
        })
    }

    /// Why there are no objects of a kind, and what follows from it.
    pub fn absent(&self) -> impl Iterator<Item = String> {
        self.sources.iter().filter_map(|(collection, source)| {
            let reason = source.absent.as_ref()?;
            let without = collection.without();
            Some(format!("{reason}: there are no {collection}{without}"))
        })
    }
}

#[cfg(test)]
mod tests;
