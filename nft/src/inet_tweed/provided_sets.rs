//! What is known of the sets of one provider, and how their elements are written: policy
//! and Services each have such sets, with very many elements.
//!
//! They are compared with what is desired when that is not known, and one of them in turn
//! when a look is forced: all at once would take seconds.

use tweed_core::keyed::Delta as KeyedDelta;

use crate::element::{self, Change, Elements};
use crate::reconcile::{Outcome, Reconciler};
use crate::table::Set;

/// Maximum number of elements in one transaction of a first load: the kernel keeps a
/// record of each until the transaction is done, hundreds of megabytes for all of them.
const CHUNK: usize = 20_000;

/// The state of the sets of one provider.
pub(super) struct ProvidedSets {
    keeper: &'static str,
    /// Whether they were left as desired, so that any difference is somebody else's.
    written: bool,
    /// The set that the next forced look compares, by its number.
    next_look: usize,
}

impl ProvidedSets {
    /// Sets of which nothing is known.
    pub(super) fn new(keeper: &'static str) -> Self {
        Self {
            keeper,
            written: false,
            next_look: 0,
        }
    }

    /// Forgets what they were left with: the planner has a plan that is no delta.
    pub(super) fn forget(&mut self) {
        self.written = false;
    }

    /// Whether they were once left as desired, and not forgotten.
    pub(super) fn are_written(&self) -> bool {
        self.written
    }

    /// Whether they are known to hold what was last desired.
    pub(super) fn are_known(&self, reconciler: &Reconciler) -> bool {
        self.written && reconciler.knows_provided(self.keeper)
    }

    /// Says that they hold what is desired, after they were compared and written.
    pub(super) fn settle(&mut self, reconciler: &mut Reconciler) {
        reconciler.settle_provided(self.keeper);
        self.written = true;
    }

    /// Says that the whole table was replaced with what is desired.
    pub(super) fn renewed(&mut self) {
        self.written = true;
    }

    /// Those of `sets` that are to be compared: all if it is not known what they hold, one
    /// in turn if a look is forced.
    pub(super) fn due(
        &mut self,
        reconciler: &Reconciler,
        sets: impl Iterator<Item = Set>,
        force_observe: bool,
    ) -> Vec<Set> {
        let mut sets: Vec<Set> = sets.collect();
        if !self.are_known(reconciler) {
            return sets;
        }
        if !force_observe {
            return Vec::new();
        }
        let number = self.next_look % sets.len().max(1);
        self.next_look = number + 1;
        sets.drain(number..).take(1).collect()
    }

    /// Counts what is to be written: as a repair if they were left as desired.
    pub(super) fn outcome(&self, changes: &[Change]) -> Outcome {
        let count = element::count(changes);
        let (changed, repaired) = if self.written { (0, count) } else { (count, 0) };
        Outcome {
            changed,
            repaired,
            messages: 0,
        }
    }
}

/// A change as several that are each small enough for a transaction: first all that it
/// removes, since a key may get another value.
pub(super) fn chunks(change: Change) -> Vec<Change> {
    let Change { set, delta } = change;
    let mut chunks = Vec::new();
    let mut push = |removed, added| {
        let set = set.clone();
        let delta = KeyedDelta { removed, added };
        chunks.push(Change { set, delta });
    };
    for part in split(delta.removed) {
        push(part, Elements::new());
    }
    for part in split(delta.added) {
        push(Elements::new(), part);
    }
    chunks
}

/// Parts of at most [`CHUNK`] elements.
fn split(elements: Elements) -> Vec<Elements> {
    let mut elements = elements.into_iter().peekable();
    let mut parts = Vec::new();
    while elements.peek().is_some() {
        parts.push(elements.by_ref().take(CHUNK).collect());
    }
    parts
}
