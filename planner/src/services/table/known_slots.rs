//! What the groups hold that the kernel has from an earlier run. A group that keeps its
//! number keeps the order of its slots and the numbers of its parts, which depend on the
//! history of its endpoints: a first plan that changed them would write most of the elements
//! again though nothing has happened. And while such a change is written, a new flow could
//! look up its part before the change and the slots of that part after it, and so reach an
//! endpoint of another Service if the number had become another group's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::desired::{Endpoint, FIRST_LIMIT, FIRST_PART, MAX_SLOTS, Number};
use super::groups::Slot;

/// The numbers of parts.
const PARTS: Range<Number> = FIRST_PART..FIRST_LIMIT;

/// The slots of groups in the kernel. They need not fit each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownSlots {
    /// [`super::desired::Desired::slots`].
    pub endpoints: BTreeMap<(Number, u8), Endpoint>,
    /// [`super::desired::Desired::member_slots`].
    pub members: BTreeMap<(Number, u8), Number>,
    /// [`super::desired::Desired::parts`]: the numbers of the parts.
    pub parts: BTreeMap<(Number, u8), Number>,
}

/// What a group held.
pub(super) enum KnownGroup<V> {
    /// These slots itself.
    Whole(Vec<V>),
    /// Parts with these numbers and slots: two or more.
    Parts(Vec<(Number, Vec<V>)>),
}

impl KnownSlots {
    /// The groups that have slots, parts included. A number may come more than once.
    pub(super) fn groups(&self) -> impl Iterator<Item = Number> {
        let groups = self.endpoints.keys().chain(self.members.keys());
        groups.chain(self.parts.keys()).map(|(group, _)| *group)
    }

    /// The endpoints of a group, or of its parts; `numbered` are those that have numbers.
    pub(super) fn endpoints_of(
        &self,
        group: Number,
        numbered: &BTreeMap<Number, Endpoint>,
    ) -> impl Iterator<Item = Endpoint> {
        let parts = dense(&self.parts, group).into_iter();
        parts.chain([group]).flat_map(|group| {
            let numbers = dense(&self.members, group).into_iter();
            let members = numbers.filter_map(|number| numbered.get(&number).copied());
            dense(&self.endpoints, group).into_iter().chain(members)
        })
    }

    /// The numbers that are those of parts. One may come more than once.
    pub(super) fn parts(&self) -> impl Iterator<Item = Number> {
        let parts = self.parts.values().copied().chain(self.groups());
        parts.filter(|part| PARTS.contains(part))
    }

    /// What a group held, if that is such values, each of them once.
    pub(super) fn group<V: Slot>(&self, group: Number) -> Option<KnownGroup<V>> {
        let parts = dense(&self.parts, group);
        let known = match &*parts {
            [] => KnownGroup::Whole(dense(V::known(self), group)),
            [_] => return None,
            parts => {
                let slots_of = |part: &Number| (*part, dense(V::known(self), *part));
                KnownGroup::Parts(parts.iter().map(slots_of).collect())
            }
        };
        let is_sound = match &known {
            KnownGroup::Whole(slots) => are_sound([slots]),
            KnownGroup::Parts(parts) => are_sound(parts.iter().map(|(_, slots)| slots)),
        };
        is_sound.then_some(known)
    }
}

/// The slots of a group from the first one to the last one before a gap.
fn dense<V: Copy>(map: &BTreeMap<(Number, u8), V>, group: Number) -> Vec<V> {
    let slots = map.range((group, 0)..(group, MAX_SLOTS));
    let slots = (0..).zip(slots);
    let dense = slots.take_while(|(index, ((_, at), _))| index == at);
    dense.map(|(_, (_, value))| *value).collect()
}

/// Whether none of these groups is empty, and no value is in two slots.
fn are_sound<'a, V: Slot + 'a>(groups: impl IntoIterator<Item = &'a Vec<V>>) -> bool {
    let mut seen = BTreeSet::new();
    groups
        .into_iter()
        .all(|slots| !slots.is_empty() && slots.iter().all(|value| seen.insert(*value)))
}
