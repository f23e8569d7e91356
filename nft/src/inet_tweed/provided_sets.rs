//! What is known of the sets of one provider, and how their elements are written: policy
//! and Services each have such sets, with very many elements.
//!
//! They are compared with what is desired when it is not known what they hold. If a look is
//! forced, one of them in turn is looked at beside the thread that writes
//! ([`look`](crate::look)), which nothing waits for: only a set in which that finds a
//! difference is compared.

use crate::element::{self, Change, Element, ElementsDelta};
use crate::error::Error;
use crate::look::{Found, Look};
use crate::reconcile::{Outcome, Reconciler};
use crate::table::Set;

/// Maximum number of elements in one transaction of what may be written in parts: the kernel
/// keeps a record of each until the transaction is done, hundreds of megabytes for all of them.
pub(super) const CHUNK: usize = 20_000;

/// Maximum number of looks in a row at one set that come to nothing, because it is written
/// all the time, before it is compared by the thread that writes.
const UNCLEAR_LOOKS: u32 = 5;

/// The state of the sets of one provider.
pub(super) struct ProvidedSets {
    keeper: &'static str,
    /// Whether they were left as desired, so that any difference is somebody else's.
    written: bool,
    turn: Turn,
    /// The look that is under way.
    look: Option<Look>,
    /// The set that has to be compared after a look.
    suspect: Option<Set>,
}

impl ProvidedSets {
    /// Sets of which nothing is known.
    pub(super) fn new(keeper: &'static str) -> Self {
        Self {
            keeper,
            written: false,
            turn: Turn::default(),
            look: None,
            suspect: None,
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
        self.drop_suspicion();
    }

    /// Says that the whole table was replaced with what is desired.
    pub(super) fn renewed(&mut self) {
        self.written = true;
        self.drop_suspicion();
    }

    /// Those of `sets` that are to be compared: all if it is not known what they hold, else
    /// the one in which a look has found a difference. If a look is forced, one begins at
    /// the set whose turn it is, unless one is still under way.
    ///
    /// # Errors
    /// No look can be begun.
    pub(super) fn due(
        &mut self,
        reconciler: &Reconciler,
        sets: impl Iterator<Item = Set>,
        force_observe: bool,
    ) -> Result<Vec<Set>, Error> {
        let sets: Vec<Set> = sets.collect();
        if !self.are_known(reconciler) {
            return Ok(sets);
        }
        if !self.take_up_look(reconciler)? && self.look.is_none() && force_observe {
            let set = sets.get(self.turn.next % sets.len().max(1));
            self.look = set.map(|set| reconciler.look(set)).transpose()?.flatten();
            if self.look.is_none() {
                self.suspect = set.cloned();
            }
        }
        Ok(self.suspect.iter().cloned().collect())
    }

    /// Takes up the look that was under way, if it has ended. Returns whether a set has to
    /// be compared.
    ///
    /// # Errors
    /// The look has to be repeated, and cannot be begun.
    pub(super) fn take_up_look(&mut self, reconciler: &Reconciler) -> Result<bool, Error> {
        if let Some(look) = self.look.take_if(|look| look.is_over()) {
            let set = look.set().clone();
            match self.turn.after(reconciler.found(look)) {
                Step::Pass => {}
                Step::Repeat => self.look = reconciler.look(&set)?,
                Step::Compare => self.suspect = Some(set),
            }
        }
        Ok(self.suspect.is_some())
    }

    /// Leaves the set to its next turn that would have to be compared: it was, or it is not
    /// known what it should hold.
    pub(super) fn drop_suspicion(&mut self) {
        self.suspect = None;
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

/// Whose turn it is to be looked at. Pure.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// The number of the set, modulo that of all sets.
    next: usize,
    /// How many looks at it have come to nothing.
    unclear: u32,
}

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing: the next set has its turn.
    Pass,
    /// The same look once more.
    Repeat,
    /// The set has to be compared, and the next one has its turn.
    Compare,
}

impl Turn {
    fn after(&mut self, found: Found) -> Step {
        let step = match found {
            Found::AsLeft => Step::Pass,
            Found::Unclear if self.unclear + 1 < UNCLEAR_LOOKS => {
                self.unclear += 1;
                return Step::Repeat;
            }
            Found::Unclear | Found::Differs => Step::Compare,
        };
        *self = Self {
            next: self.next.wrapping_add(1),
            unclear: 0,
        };
        step
    }
}

/// A change as several that are each small enough for a transaction: first all that it
/// removes, since a key may get another value.
pub(super) fn chunks(change: Change) -> Vec<Change> {
    let Change { set, delta } = change;
    let mut chunks = Vec::new();
    let mut push = |removed, added| {
        let set = set.clone();
        let delta = ElementsDelta { removed, added };
        chunks.push(Change { set, delta });
    };
    for part in split(delta.removed) {
        push(part, Vec::new());
    }
    for part in split(delta.added) {
        push(Vec::new(), part);
    }
    chunks
}

/// Parts of at most [`CHUNK`] elements.
fn split(elements: Vec<Element>) -> Vec<Vec<Element>> {
    let mut elements = elements.into_iter().peekable();
    let mut parts = Vec::new();
    while elements.peek().is_some() {
        parts.push(elements.by_ref().take(CHUNK).collect());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_written_all_the_time_is_compared_after_some_looks() {
        let mut turn = Turn::default();
        assert_eq!(turn.after(Found::AsLeft), Step::Pass);
        for _ in 1..UNCLEAR_LOOKS {
            assert_eq!(turn.after(Found::Unclear), Step::Repeat);
            assert_eq!(turn.next, 1);
        }
        assert_eq!(turn.after(Found::Unclear), Step::Compare);
        assert_eq!(turn.next, 2);
        assert_eq!(turn.after(Found::Unclear), Step::Repeat);
        assert_eq!(turn.after(Found::Differs), Step::Compare);
        assert_eq!((turn.next, turn.unclear), (3, 0));
    }
}
