//! The numbers that the kernel has from the planner of an earlier run. Clients of session
//! affinity are remembered by them, so the first plan of this run takes them over: a
//! Service port keeps its groups by its frontends, and its endpoints keep their numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use super::desired::{
    AFFINITY_BLOCK, Desired, Endpoint, FIRST_AFFINITY, FIRST_GROUP, FIRST_PART, Number, Target,
    Tracked, affinity_key,
};

/// What the numbers of groups and endpoints mean in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNumbers {
    /// The groups that frontends of all protocols lead to:
    /// [`super::desired::Frontends::targets`].
    pub groups: BTreeMap<Tracked, Number>,
    /// [`Desired::endpoints`].
    pub endpoints: BTreeMap<Number, Endpoint>,
}

impl From<&Desired> for KnownNumbers {
    fn from(desired: &Desired) -> Self {
        let addresses = desired.addresses.targets.iter();
        let addresses = addresses.map(|(key, target)| (Tracked::Address(*key), target));
        let node_ports = desired.node_ports.targets.iter();
        let node_ports = node_ports.map(|(key, target)| (Tracked::NodePort(*key), target));
        let groups = addresses
            .chain(node_ports)
            .filter_map(|(key, target)| match target {
                Target::Group(group) => Some((key, *group)),
                Target::Reject | Target::Drop => None,
            });
        Self {
            groups: groups.collect(),
            endpoints: desired.endpoints.clone(),
        }
    }
}

/// The numbers of groups without affinity.
const PLAIN: Range<Number> = FIRST_GROUP..FIRST_PART;

impl KnownNumbers {
    /// The frontends of a protocol, with the groups that they lead to.
    #[must_use]
    pub fn frontends_of(&self, protocol: u8) -> BTreeMap<Tracked, Number> {
        let groups = self.groups.iter();
        let groups = groups.filter(|(frontend, _)| frontend.protocol() == protocol);
        groups
            .map(|(frontend, group)| (*frontend, *group))
            .collect()
    }

    /// Halves of the numbers of groups without affinity.
    pub(super) fn halves(&self) -> impl Iterator<Item = Number> {
        let groups = self.groups.values().filter(|group| PLAIN.contains(group));
        groups.map(|group| group / 2)
    }

    /// The numbers of blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Number> {
        let numbers = self.groups.values().chain(self.endpoints.keys());
        let affine = numbers.filter(|number| **number >= FIRST_AFFINITY);
        affine.map(|number| number / AFFINITY_BLOCK)
    }

    /// The first numbers of the groups, with affinity or without, that these frontends
    /// lead to.
    pub(super) fn bases(
        &self,
        frontends: impl Iterator<Item = Tracked>,
        affinity: bool,
    ) -> impl Iterator<Item = Number> {
        let groups = frontends.filter_map(|frontend| self.groups.get(&frontend));
        groups.filter_map(move |group| match affinity {
            true => (*group >= FIRST_AFFINITY).then(|| affinity_key(*group)),
            false => PLAIN.contains(group).then_some(group & !1),
        })
    }

    /// The numbers that endpoints have in the block that begins with this one.
    pub(super) fn of_block(&self, base: Number) -> BTreeMap<Endpoint, Number> {
        let block = base + 2..=base + (AFFINITY_BLOCK - 1);
        let known = self.endpoints.range(block);
        known
            .map(|(number, endpoint)| (*endpoint, *number))
            .collect()
    }
}
