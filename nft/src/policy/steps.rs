//! The transactions of a change of the plan. Pure.
//!
//! What says which profile a packet has changes in one transaction: whatever is split, a packet
//! could find one half with the other half missing, and be dropped though both plans allow it,
//! or pass though neither does. No order of parts avoids that in general: an address that goes
//! from one identity to another meets pairs that come and go in the same change.
//!
//! Most of what profiles allow comes with a number that nothing leads to before, and goes with
//! the last that led to it. So of a large change these elements, which are most of them where
//! many networks overlap, are written in chunks before that transaction, and removed after it. It
//! then needs less of the kernel's memory: a record of each element, and if anybody on the
//! machine listens a notification of 8 KiB for each. Of a profile that keeps its number, and
//! range profiles do not, what differs is a part of that transaction.

use tweed_planner::policy::{Delta, Desired};

use super::sets;
use crate::element::{self, Change, Element, ElementsDelta};
use crate::schema;
use crate::tables::{CHUNK, chunks};
use crate::value::Value;

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
    /// Those of the change that leads from one plan to the next.
    pub(super) fn of(delta: &Delta) -> Self {
        let changes = schema::changes::<Desired>(delta);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if element::count(&changes) <= CHUNK {
            return Self {
                before,
                at_once: changes,
                after,
            };
        }
        let of_profiles: Vec<String> = sets::of_profiles().map(|set| set.name()).collect();
        let profiles = &delta.verdicts.profiles;
        let stays = |(key, _): &Element| match key.fields() {
            [field, ..] => match field.first {
                Value::Class(number) => {
                    profiles.added.contains_key(&number) && profiles.removed.contains_key(&number)
                }
                _ => false,
            },
            [] => false,
        };
        let (split, mut at_once): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| of_profiles.contains(&change.set));
        for Change { set, delta } in split {
            let ElementsDelta { removed, added } = delta;
            let (now_removed, removed) = removed.into_iter().partition(stays);
            let (now_added, added) = added.into_iter().partition(stays);
            let now = ElementsDelta {
                removed: now_removed,
                added: now_added,
            };
            if !now.is_empty() {
                let set = set.clone();
                at_once.push(Change { set, delta: now });
            }
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
