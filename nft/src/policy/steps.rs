//! The transactions of a change of the plan. Pure.
//!
//! What says which profile a packet has changes in one transaction: whatever is split, a packet
//! could find one half with the other half missing, and be dropped though both plans allow it,
//! or pass though neither does. No order of parts avoids that in general: an address that goes
//! from one identity to another meets pairs that come and go in the same change.
//!
//! What a profile allows is never changed: a change gives it with a number that nothing leads
//! to before, and takes it away with the last that led to it. So of a large change these
//! elements, which are most of them where many networks overlap, are written in chunks before
//! that transaction, and removed after it. It then needs less of the kernel's memory: a record of
//! each element, and if anybody on the machine listens a notification of 8 KiB for each.

use super::sets;
use crate::element::{self, Change, ElementsDelta};
use crate::tables::{CHUNK, chunks};

/// A change in the order in which it is written.
pub(super) struct Steps {
    /// Transactions that no packet sees.
    pub before: Vec<Change>,
    /// One transaction.
    pub at_once: Vec<Change>,
    /// Transactions that no packet sees.
    pub after: Vec<Change>,
}

impl Steps {
    /// Those of changes that lead from one plan to the next.
    pub(super) fn of(changes: Vec<Change>) -> Self {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if element::count(&changes) <= CHUNK {
            return Self {
                before,
                at_once: changes,
                after,
            };
        }
        let of_profiles: Vec<String> = sets::of_profiles().map(|set| set.name()).collect();
        let (split, at_once): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| of_profiles.contains(&change.set));
        for Change { set, delta } in split {
            let ElementsDelta { removed, added } = delta;
            for (step, removed, added) in [
                (&mut before, Vec::new(), added),
                (&mut after, removed, Vec::new()),
            ] {
                let set = set.clone();
                let delta = ElementsDelta { removed, added };
                step.extend(chunks(Change { set, delta }));
            }
        }
        Self {
            before,
            at_once,
            after,
        }
    }
}
