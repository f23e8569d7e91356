//! Generations of the policies: the number that a judged flow carries in its conntrack
//! mark.
//!
//! The map `policy_entry` leads packets to the chain of the number in force, which lets
//! flows pass that carry the same number, and judges all others. When policies take
//! something away, the number changes in the same transaction as the elements, so each
//! flow is judged once more by its next packet.
//!
//! A packet reads its number before it is judged, since it is the chain it is in. If the
//! elements change meanwhile, its flow gets the old number, and is judged again. Before
//! a number is used a second time the bits of all entries are cleared: that takes much
//! longer than any packet is on its way through the rules.

use tweed_core::ownership::{POLICY_GENERATIONS, POLICY_MARK_MASK};
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{FAMILY_IPV4, FAMILY_IPV6};

use crate::element::{Change, Data, Elements, ElementsDelta, Field};
use crate::table::{DataType, Keeper, Set};
use crate::value::{Type, Value};

/// The name of the map that leads to the chain of the generation in force.
pub(super) const ENTRY: &str = "policy_entry";

/// The names of the chains, one for each generation: `policy_1`, …
pub(super) const CHAINS: [&str; 31] = [
    "policy_1",
    "policy_2",
    "policy_3",
    "policy_4",
    "policy_5",
    "policy_6",
    "policy_7",
    "policy_8",
    "policy_9",
    "policy_10",
    "policy_11",
    "policy_12",
    "policy_13",
    "policy_14",
    "policy_15",
    "policy_16",
    "policy_17",
    "policy_18",
    "policy_19",
    "policy_20",
    "policy_21",
    "policy_22",
    "policy_23",
    "policy_24",
    "policy_25",
    "policy_26",
    "policy_27",
    "policy_28",
    "policy_29",
    "policy_30",
    "policy_31",
];

/// A generation, one of [`POLICY_GENERATIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u8);

impl Generation {
    /// The one after all bits in conntrack have been cleared.
    pub(super) const FIRST: Self = Self(*POLICY_GENERATIONS.start());

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        POLICY_GENERATIONS.map(Self)
    }

    /// How many others there are: so many can be used one after the other, after the
    /// bits of all entries have been cleared.
    pub(super) const OTHERS: u8 = *POLICY_GENERATIONS.end() - *POLICY_GENERATIONS.start();

    /// The next one; after the last comes the first.
    pub(super) fn next(self) -> Self {
        Self(self.0 % *POLICY_GENERATIONS.end() + 1)
    }

    /// Its bits in the conntrack mark.
    pub(super) fn mark(self) -> u32 {
        u32::from(self.0) << POLICY_MARK_MASK.trailing_zeros()
    }

    /// The name of its chain.
    pub(super) fn chain(self) -> &'static str {
        CHAINS[usize::from(self.0) - 1]
    }

    /// The elements of the map while it is in force.
    pub(super) fn elements(self) -> Elements {
        let verdict = Data::Verdict(Verdict::Goto(self.chain().to_owned()));
        [FAMILY_IPV4, FAMILY_IPV6]
            .map(|family| {
                let key = Field::from(Value::Family(family)).into();
                (key, Some(Box::new(verdict.clone())))
            })
            .into()
    }

    /// The one that the map leads to; none if it leads nowhere.
    pub(super) fn read(elements: &Elements) -> Option<Self> {
        elements.values().flatten().find_map(|data| match &**data {
            Data::Verdict(Verdict::Goto(name)) => {
                Self::all().find(|generation| generation.chain() == name)
            }
            _ => None,
        })
    }
}

/// The change of the map from one generation, or none, to another.
pub(super) fn change(from: Option<Generation>, to: Generation) -> Change {
    let removed = from.map(Generation::elements).unwrap_or_default();
    Change {
        set: ENTRY.to_owned(),
        delta: ElementsDelta::between(removed, to.elements()),
    }
}

/// How the table declares the map.
pub(super) fn entry() -> Set {
    Set {
        name: ENTRY.to_owned(),
        key: vec![Type::Family],
        data: Some(DataType::Verdict),
        interval: false,
        keeper: Keeper::Reconciler,
    }
}
