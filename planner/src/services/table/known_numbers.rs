//! The numbers that the kernel has from the planner of an earlier run, which the first plan
//! of this run takes over. Clients of session affinity are remembered by them: a Service
//! port keeps its groups by its frontends, and its endpoints keep their numbers. A limit
//! keeps its number by its sources, because no client is refused while a limit changes only
//! as long as its number does not become another one's. A group keeps its slots
//! ([`KnownSlots`]).

use std::collections::BTreeMap;
use std::ops::Range;

use tweed_core::family::Family;

use super::desired::{
    AFFINITY_BLOCK, Endpoint, FIRST_AFFINITY, FIRST_GROUP, FIRST_LIMIT, FIRST_PART, Number,
    PORT_DISTANCE, Span, Tracked, affinity_key, both_scopes, endpoint_numbers,
};
use super::known_slots::KnownSlots;

/// What the numbers of groups, endpoints and limits mean in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNumbers {
    /// The groups that frontends of all protocols lead to:
    /// [`super::desired::Frontends::targets`].
    pub groups: BTreeMap<Tracked, Number>,
    /// [`super::desired::Desired::endpoints`].
    pub endpoints: BTreeMap<Number, Endpoint>,
    /// The limits, each with the sources that pass it, in ascending order:
    /// [`super::desired::Desired::allowed`]. One that lets nobody pass is in here if a frontend
    /// has it.
    pub limits: BTreeMap<(Family, Number), Vec<Span>>,
    /// What the groups hold.
    pub slots: KnownSlots,
}

/// The numbers of groups without affinity.
const PLAIN: Range<Number> = FIRST_GROUP..FIRST_PART;
/// The numbers of limits.
const LIMITS: Range<Number> = FIRST_LIMIT..FIRST_AFFINITY;

impl KnownNumbers {
    /// The frontends of a protocol, each with the endpoints that it may have led to.
    #[must_use]
    pub fn frontends_of(&self, protocol: u8) -> BTreeMap<Tracked, Vec<Endpoint>> {
        let all = self.groups.iter();
        let groups = all.filter(|(frontend, _)| frontend.protocol() == protocol);
        let endpoints = |group: Number| {
            let both = both_scopes(group).into_iter();
            both.flat_map(|group| self.slots.endpoints_of(group, &self.endpoints))
        };
        groups
            .map(|(frontend, group)| (*frontend, endpoints(*group).collect()))
            .collect()
    }

    /// The numbers of Service ports without affinity.
    pub(super) fn plain(&self) -> impl Iterator<Item = Number> {
        let groups = self.groups.values().copied().chain(self.slots.groups());
        let plain = groups.filter(|group| PLAIN.contains(group));
        plain.map(|group| group / PORT_DISTANCE)
    }

    /// The numbers of blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Number> {
        let listed = self.groups.values().chain(self.endpoints.keys()).copied();
        let numbers = listed.chain(self.slots.groups());
        let affine = numbers.filter(|number| *number >= FIRST_AFFINITY);
        affine.map(|number| number / AFFINITY_BLOCK)
    }

    /// The limits whose numbers are such.
    pub(super) fn limits(&self) -> impl Iterator<Item = (Number, (Family, Box<[Span]>))> {
        let all = self.limits.iter();
        let limits = all.filter(|((_, number), _)| LIMITS.contains(number));
        limits.map(|((family, number), spans)| (*number, (*family, spans.as_slice().into())))
    }

    /// The first numbers of the groups, with affinity or without, that these frontends
    /// lead to.
    pub(super) fn bases(
        &self,
        frontends: impl Iterator<Item = Tracked>,
        affinity: bool,
    ) -> impl Iterator<Item = Number> {
        let groups = frontends.filter_map(|frontend| self.groups.get(&frontend));
        groups.filter_map(move |group| {
            if affinity {
                (*group >= FIRST_AFFINITY).then(|| affinity_key(*group))
            } else {
                PLAIN
                    .contains(group)
                    .then_some(group & !(PORT_DISTANCE - 1))
            }
        })
    }

    /// The numbers that endpoints have in the block that begins with this one.
    pub(super) fn of_block(&self, base: Number) -> BTreeMap<Endpoint, Number> {
        let known = self.endpoints.range(endpoint_numbers(base));
        known
            .map(|(number, endpoint)| (*endpoint, *number))
            .collect()
    }
}
