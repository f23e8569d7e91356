//! The transactions of a change of the plan. Pure.
//!
//! What says which profile a packet has changes in one transaction: whatever is split, a packet
//! could find one half with the other half missing, and be dropped though both plans allow it,
//! or pass though neither does. No order of parts avoids that in general: an address that goes
//! from one identity to another meets pairs that come and go in the same change.
//!
//! Most of what profiles allow comes with a number that nothing leads to before, and goes with
//! the last that led to it, or later. So of a large change these elements, which are most of them where
//! many networks overlap, are written in chunks before that transaction, and removed after it. It
//! then needs less of the kernel's memory: a record of each element, and if anybody on the
//! machine listens a notification of 8 KiB for each. What differs of a profile that keeps its
//! number is a part of that transaction.

use std::collections::{BTreeMap, BTreeSet};

use tweed_planner::policy::desired::Number;
use tweed_planner::policy::{Delta, Desired};

use super::sets;
use crate::element::{self, Change, Element, Key};
use crate::schema;
use crate::tables::{CHUNK, chunks, in_steps};
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
        let (profiles, of_ranges) = (&delta.verdicts.profiles, &delta.ports.range_profiles);
        let numbers = |profiles: &BTreeMap<Number, _>, of_ranges: &BTreeMap<_, Number>| {
            let all = profiles.keys().chain(of_ranges.values()).copied();
            all.collect::<BTreeSet<Number>>()
        };
        let come = numbers(&profiles.added, &of_ranges.added);
        let go = numbers(&profiles.removed, &of_ranges.removed);
        let is_of = |numbers: &BTreeSet<Number>, others: &BTreeSet<Number>, key: &Key| {
            let number = key.fields().first().map(|field| field.first);
            matches!(number, Some(Value::Class(one)) if numbers.contains(&one) && !others.contains(&one))
        };
        let (split, mut at_once): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| of_profiles.contains(&change.set));
        for change in split {
            let goes = |(key, _): &Element| is_of(&go, &come, key);
            let comes = |(key, _): &Element| is_of(&come, &go, key);
            let [added, now, removed] = in_steps(change, comes, goes);
            before.extend(chunks(added));
            at_once.extend((!now.delta.is_empty()).then_some(now));
            after.extend(chunks(removed));
        }
        Self {
            before,
            at_once,
            after,
        }
    }
}
