//! Generations of the policies: the number that an evaluated flow carries in its conntrack
//! mark.
//!
//! The map `policy_entry` leads packets to the chain of the number in force, which lets
//! flows pass that carry the same number, and evaluates all others. When policies take
//! something away, the number changes in the same transaction as the elements, so each
//! flow is evaluated once more by its next packet.
//!
//! A packet reads its number before it is evaluated, since it is the chain it is in. If the
//! elements change meanwhile, its flow gets the old number, and is evaluated again.
//!
//! Before a number is used a second time no entry may carry it. The kernel walks through
//! all connections, however few of them a listing asks for, so the numbers come in windows
//! ([`Window`]) that one listing selects: the next one is cleared while one is in use.

use tweed_core::ownership::{POLICY_GENERATIONS, POLICY_MARK_MASK};
use tweed_netlink::nf::conntrack::MarkFilter;
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{FAMILY_IPV4, FAMILY_IPV6};

use crate::element::{Change, Data, Elements, ElementsDelta, Field};
use crate::table::{DataType, KeptBy, Set};
use crate::value::{Type, Value};

/// The name of the map that leads to the chain of the generation in force.
pub(super) const ENTRY: &str = "policy_entry";

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

    /// The next one. After the last comes the first of the window before the last: the
    /// smaller ones before it would be worth too few changes for a walk.
    pub(super) fn next(self) -> Self {
        let next = self.0 + 1;
        Self(if POLICY_GENERATIONS.contains(&next) {
            next
        } else {
            next / 4
        })
    }

    /// The window that it is in.
    pub(super) fn window(self) -> Window {
        Window {
            first: 1 << self.0.ilog2(),
        }
    }

    /// Its bits in the conntrack mark.
    pub(super) fn mark(self) -> u32 {
        u32::from(self.0) << POLICY_MARK_MASK.trailing_zeros()
    }

    /// The name of its chain.
    pub(super) fn chain(self) -> String {
        format!("policy_{}", self.0)
    }

    /// The elements of the map while it is in force.
    pub(super) fn elements(self) -> Elements {
        let verdict = Data::Verdict(Verdict::Goto(self.chain()));
        [FAMILY_IPV4, FAMILY_IPV6]
            .map(|family| {
                let key = Field::from(Value::Protocol(family)).into();
                (key, Some(Box::new(verdict.clone())))
            })
            .into()
    }

    /// The one that the map leads to; none if it leads nowhere.
    pub(super) fn read(elements: &Elements) -> Option<Self> {
        elements.values().flatten().find_map(|data| match &**data {
            Data::Verdict(Verdict::Goto(name)) => {
                Self::all().find(|generation| generation.chain() == *name)
            }
            _ => None,
        })
    }
}

/// The generations whose numbers have the same highest bit: 1, 2 and 3, 4 to 7, 8 to 15,
/// 16 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    first: u8,
}

impl Window {
    /// Whether it is one of them.
    pub(super) fn contains(self, generation: Generation) -> bool {
        generation.window() == self
    }

    /// The entries of conntrack that carry one of them.
    pub(super) fn filter(self) -> MarkFilter {
        let first = Generation(self.first).mark();
        MarkFilter {
            value: first,
            mask: POLICY_MARK_MASK & first.wrapping_neg(),
        }
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
        kept_by: KeptBy::Keeper,
    }
}
