//! The sets of what VXLAN packets may have inside: pairs of an outer source and the
//! network that the source inside is in, as pure functions of a [`Ruleset`].
//!
//! There is a set for each family and prefix length of those networks, and its rule
//! looks up the source's first so many bits. A cluster has one length for each
//! family, or few, so this is one lookup for a packet. One set of ranges would do
//! for all lengths, and cost a packet 6 % of its whole way between two nodes instead
//! of 1.3 %, and 25 ms of kernel time for each of 5,000 Nodes that goes: the kernel
//! searches a set of concatenated ranges with the vector registers, which it has to
//! save first, and takes elements out by going through all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_planner::overlay::desired::{Ruleset, RulesetDelta};

use crate::element::{Change, Contents, Element, ElementsDelta, Field};
use crate::table::{KeptBy, Set};
use crate::value::{Type, Value};
use crate::words::digit;

/// What networks inside of packets have in common that are in one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InnerPrefix {
    family: Family,
    length: u8,
}

impl From<&IpNetwork> for InnerPrefix {
    fn from(network: &IpNetwork) -> Self {
        Self {
            family: Family::of(network.ip()),
            length: network.prefix(),
        }
    }
}

impl InnerPrefix {
    /// The name of its set for an outer family: `vxlan_ipv4_24_sources6`.
    fn set(self, outer: Family) -> String {
        let (inner, outer) = (digit(self.family), digit(outer));
        format!("vxlan_ipv{inner}_{}_sources{outer}", self.length)
    }

    fn source(self) -> Type {
        match self.family {
            Family::V4 => Type::InnerIpv4,
            Family::V6 => Type::InnerIpv6,
        }
    }

    /// The condition of a rule that holds for packets with a pair of its set.
    ///
    /// The type in the inner Ethernet header comes first: it says which source is to
    /// be looked at, and is compared on the spot. It stands behind 8 bytes of UDP, 8
    /// of VXLAN and two MACs, at bit 224.
    pub(super) fn condition(self, outer: Family) -> String {
        let (ethertype, mask) = match self.family {
            Family::V4 => {
                let unused = 32 - u32::from(self.length);
                let mask = u32::MAX.checked_shl(unused).unwrap_or_default();
                ("0x0800", format!("{mask:#010x}"))
            }
            Family::V6 => {
                let unused = 128 - u32::from(self.length);
                let mask = u128::MAX.checked_shl(unused).unwrap_or_default();
                ("0x86dd", format!("{mask:#034x}"))
            }
        };
        let (saddr, source) = (address(outer).expression(), self.source().expression());
        let set = self.set(outer);
        format!("@th,224,16 {ethertype} {saddr} . {source} & {mask} @{set}")
    }

    /// The elements of its set for an outer family, out of these pairs.
    fn elements<'a>(
        self,
        outer: Family,
        pairs: impl Iterator<Item = &'a (IpAddr, IpNetwork)>,
    ) -> impl Iterator<Item = Element> {
        let pairs = pairs
            .filter(move |(source, inner)| Family::of(*source) == outer && self == inner.into());
        pairs.map(|(source, inner)| {
            let inner = Value::Inner(inner.network());
            let fields: [Field; 2] = [(*source).into(), inner.into()];
            (fields.into_iter().collect(), None)
        })
    }
}

fn address(family: Family) -> Type {
    match family {
        Family::V4 => Type::Ipv4,
        Family::V6 => Type::Ipv6,
    }
}

/// What the networks of `ruleset` have for prefixes. Those of the own pods are there
/// from the beginning, since those of the first other Node have likely the same.
pub(super) fn prefixes(ruleset: &Ruleset) -> BTreeSet<InnerPrefix> {
    if ruleset.vxlan.is_none() {
        return BTreeSet::new();
    }
    let own = ruleset.local_cidrs.iter().map(InnerPrefix::from);
    let sources = ruleset.vxlan_sources.iter();
    own.chain(sources.map(|(_, inner)| inner.into())).collect()
}

/// The declarations of the sets for `prefixes`.
pub(super) fn sets(prefixes: &BTreeSet<InnerPrefix>) -> impl Iterator<Item = Set> {
    all(prefixes).map(|(prefix, outer)| Set {
        name: prefix.set(outer),
        key: vec![address(outer), prefix.source()],
        data: None,
        interval: false,
        kept_by: KeptBy::Keeper,
    })
}

/// What the sets for `prefixes` should hold.
pub(super) fn contents(prefixes: &BTreeSet<InnerPrefix>, ruleset: &Ruleset) -> Contents {
    let sets = all(prefixes).map(|(prefix, outer)| {
        let elements = prefix.elements(outer, ruleset.vxlan_sources.iter());
        (prefix.set(outer), elements.collect())
    });
    sets.collect()
}

/// What `delta` changes of the sets for `prefixes`.
pub(super) fn changes(
    prefixes: &BTreeSet<InnerPrefix>,
    delta: &RulesetDelta,
) -> impl Iterator<Item = Change> {
    all(prefixes).map(|(prefix, outer)| {
        let elements = |pairs: &BTreeMap<_, ()>| prefix.elements(outer, pairs.keys()).collect();
        let delta = ElementsDelta {
            removed: elements(&delta.vxlan_sources.removed),
            added: elements(&delta.vxlan_sources.added),
        };
        let set = prefix.set(outer);
        Change { set, delta }
    })
}

/// Each prefix with the outer families.
fn all(prefixes: &BTreeSet<InnerPrefix>) -> impl Iterator<Item = (InnerPrefix, Family)> {
    prefixes
        .iter()
        .flat_map(|prefix| Family::BOTH.map(|outer| (*prefix, outer)))
}
