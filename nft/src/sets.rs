//! The sets of the table: what each is for, who writes it, and what it holds.
//!
//! A set is named by its kind and a digit for the family: `cluster_cidrs4`.
//! Everything here is pure; [`crate::elements`] speaks with the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use tweed_core::family::Family;
use tweed_planner::overlay::desired::Ruleset;

/// Who writes a set's elements. Nobody else may: a writer puts back what
/// others change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// [`super::Table::reconcile`].
    Reconciler,
}

/// One kind of set; the table has it once for each family.
#[derive(Debug)]
pub struct SetKind {
    /// Its name without the digit.
    pub name: &'static str,
    /// Whether elements are ranges (CIDRs) rather than single addresses.
    pub interval: bool,
    /// Who writes its elements.
    pub writer: Writer,
    /// What it should hold, of both families.
    elements: fn(&Ruleset) -> Vec<IpNetwork>,
}

/// Every set of the table and its one writer.
pub const SETS: [SetKind; 4] = [
    SetKind {
        name: "local_cidrs",
        interval: true,
        writer: Writer::Reconciler,
        elements: |ruleset| ruleset.local_cidrs.iter().copied().collect(),
    },
    SetKind {
        name: "cluster_cidrs",
        interval: true,
        writer: Writer::Reconciler,
        elements: |ruleset| ruleset.cluster_cidrs.iter().copied().collect(),
    },
    SetKind {
        name: "node_addresses",
        interval: false,
        writer: Writer::Reconciler,
        elements: |ruleset| hosts(&ruleset.node_addresses),
    },
    SetKind {
        name: "vxlan_sources",
        interval: false,
        writer: Writer::Reconciler,
        elements: |ruleset| hosts(&ruleset.vxlan_sources),
    },
];

/// Both families, in the order in which the table names them.
pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn hosts(addresses: &BTreeSet<IpAddr>) -> Vec<IpNetwork> {
    addresses.iter().copied().map(IpNetwork::from).collect()
}

impl SetKind {
    /// The set's name in the kernel.
    #[must_use]
    pub fn of(&self, family: Family) -> String {
        let digit = match family {
            Family::V4 => '4',
            Family::V6 => '6',
        };
        format!("{}{digit}", self.name)
    }
}

/// One element: every address from `first` to `last`, both included. The two
/// are equal in sets of single addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// Lowest address.
    pub first: IpAddr,
    /// Highest address, of the same family.
    pub last: IpAddr,
}

impl From<IpNetwork> for Element {
    fn from(network: IpNetwork) -> Self {
        Self {
            first: network.network(),
            last: network.broadcast(),
        }
    }
}

/// What the sets hold, by the set's name; every set of [`SETS`] is there, the
/// empty ones too.
pub type Contents = BTreeMap<String, BTreeSet<Element>>;

/// What the sets should hold. A CIDR that lies in another is left out, since
/// elements of one set must not overlap; neighbouring CIDRs stay apart, so that
/// one Node more or less changes nobody else's element.
#[must_use]
pub fn contents(ruleset: &Ruleset) -> Contents {
    let mut contents = Contents::new();
    for kind in &SETS {
        for family in FAMILIES {
            let mut elements: Vec<Element> = (kind.elements)(ruleset)
                .into_iter()
                .filter(|network| Family::of(network.ip()) == family)
                .map(Element::from)
                .collect();
            // The wider one of two that start together comes first.
            elements.sort_by(|a, b| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
            // CIDRs overlap only as a whole.
            elements.dedup_by(|later, kept| later.last <= kept.last);
            contents.insert(kind.of(family), elements.into_iter().collect());
        }
    }
    contents
}

/// What one set needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The set's name.
    pub set: String,
    /// Elements that must go.
    pub remove: BTreeSet<Element>,
    /// Elements that must come.
    pub add: BTreeSet<Element>,
}

impl Change {
    /// How many elements it touches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.remove.len() + self.add.len()
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What makes `desired` of `actual`; sets that need nothing are left out.
#[must_use]
pub fn diff(actual: &Contents, desired: &Contents) -> Vec<Change> {
    let none = BTreeSet::new();
    desired
        .iter()
        .map(|(set, desired)| {
            let actual = actual.get(set).unwrap_or(&none);
            Change {
                set: set.clone(),
                remove: actual.difference(desired).copied().collect(),
                add: desired.difference(actual).copied().collect(),
            }
        })
        .filter(|change| !change.is_empty())
        .collect()
}

/// Whether the set of this name holds ranges.
pub(super) fn is_interval(set: &str) -> bool {
    SETS.iter()
        .any(|kind| kind.interval && FAMILIES.iter().any(|family| kind.of(*family) == set))
}

/// How many elements `changes` touch.
pub(super) fn count(changes: &[Change]) -> usize {
    changes.iter().map(Change::len).sum()
}

/// How many of `changes` are not in `others`.
pub(super) fn count_beyond(changes: &[Change], others: &[Change]) -> usize {
    let none = BTreeSet::new();
    changes
        .iter()
        .map(|change| {
            let other = others.iter().find(|other| other.set == change.set);
            let (remove, add) = other.map_or((&none, &none), |other| (&other.remove, &other.add));
            change.remove.difference(remove).count() + change.add.difference(add).count()
        })
        .sum()
}

/// The address after `address`; none after the last of its family.
pub(super) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => Some(Ipv4Addr::from(u32::from(v4).checked_add(1)?).into()),
        IpAddr::V6(v6) => Some(Ipv6Addr::from(u128::from(v6).checked_add(1)?).into()),
    }
}

/// The address before `address`; none before the first of its family.
pub(super) fn previous(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => Some(Ipv4Addr::from(u32::from(v4).checked_sub(1)?).into()),
        IpAddr::V6(v6) => Some(Ipv6Addr::from(u128::from(v6).checked_sub(1)?).into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidrs(list: &[&str]) -> BTreeSet<IpNetwork> {
        list.iter().map(|cidr| cidr.parse().unwrap()).collect()
    }

    fn texts(elements: &BTreeSet<Element>) -> Vec<String> {
        elements
            .iter()
            .map(|element| format!("{}-{}", element.first, element.last))
            .collect()
    }

    #[test]
    fn a_cidr_within_another_is_left_out_and_neighbours_stay_apart() {
        let ruleset = Ruleset {
            cluster_cidrs: cidrs(&[
                "10.244.2.0/24",
                "10.0.0.0/24",
                "10.244.0.0/16",
                "10.244.0.0/24",
                "10.0.1.0/24",
                "fd00::/56",
                "fd00:0:0:1::/64",
                "0.0.0.0/32",
                "255.255.255.255/32",
            ]),
            ..Ruleset::default()
        };
        let contents = contents(&ruleset);
        assert_eq!(
            texts(&contents["cluster_cidrs4"]),
            [
                "0.0.0.0-0.0.0.0",
                "10.0.0.0-10.0.0.255",
                "10.0.1.0-10.0.1.255",
                "10.244.0.0-10.244.255.255",
                "255.255.255.255-255.255.255.255"
            ]
        );
        assert_eq!(
            texts(&contents["cluster_cidrs6"]),
            ["fd00::-fd00::ff:ffff:ffff:ffff:ffff"]
        );
    }

    #[test]
    fn host_bits_of_a_cidr_do_not_matter() {
        let ruleset = Ruleset {
            local_cidrs: cidrs(&["10.244.1.7/24"]),
            ..Ruleset::default()
        };
        assert_eq!(
            texts(&contents(&ruleset)["local_cidrs4"]),
            ["10.244.1.0-10.244.1.255"]
        );
    }

    fn network() -> impl Strategy<Value = IpNetwork> {
        prop_oneof![
            (any::<u32>(), 0..=32u8).prop_map(|(ip, prefix)| IpNetwork::new(
                Ipv4Addr::from(ip & 0xf00f_00f0).into(),
                prefix
            )),
            (any::<u128>(), 0..=128u8).prop_map(|(ip, prefix)| IpNetwork::new(
                Ipv6Addr::from(ip & (0xf0f << 100)).into(),
                prefix
            )),
        ]
        .prop_map(|network| network.unwrap())
    }

    fn ruleset() -> impl Strategy<Value = Ruleset> {
        let networks = || prop::collection::btree_set(network(), 0..30);
        let addresses =
            || prop::collection::btree_set(network().prop_map(|network| network.ip()), 0..30);
        (networks(), networks(), addresses(), addresses()).prop_map(
            |(local_cidrs, cluster_cidrs, node_addresses, vxlan_sources)| Ruleset {
                local_cidrs,
                cluster_cidrs,
                node_addresses,
                vxlan_sources,
                ..Ruleset::default()
            },
        )
    }

    fn apply(mut contents: Contents, changes: &[Change]) -> Contents {
        for change in changes {
            let set = contents.entry(change.set.clone()).or_default();
            for element in &change.remove {
                assert!(
                    set.remove(element),
                    "the kernel refuses to remove what is not there"
                );
            }
            for element in &change.add {
                assert!(set.insert(*element), "nothing is added twice");
            }
        }
        contents
    }

    proptest! {
        #[test]
        fn the_diff_makes_what_is_desired_and_is_then_empty(a in ruleset(), b in ruleset()) {
            let desired = contents(&b);
            let after = apply(contents(&a), &diff(&contents(&a), &desired));
            prop_assert_eq!(&after, &desired);
            prop_assert_eq!(diff(&after, &desired), vec![]);
        }

        #[test]
        fn elements_hold_the_same_addresses_as_the_cidrs_and_never_overlap(ruleset in ruleset(), probe in network()) {
            let contents = contents(&ruleset);
            let family = Family::of(probe.ip());
            let elements = &contents[&SETS[1].of(family)];
            let mut end = None;
            for element in elements {
                prop_assert!(end.is_none_or(|end| element.first > end));
                end = Some(element.last);
            }
            for address in [probe.ip(), probe.network(), probe.broadcast()] {
                prop_assert_eq!(
                    ruleset.cluster_cidrs.iter().any(|cidr| cidr.contains(address)),
                    elements.iter().any(|element| element.first <= address && address <= element.last)
                );
            }
        }

        #[test]
        fn drift_is_what_nobody_asked_for(a in ruleset(), b in ruleset()) {
            let changes = diff(&contents(&a), &contents(&b));
            prop_assert_eq!(count_beyond(&changes, &changes), 0);
            prop_assert_eq!(count_beyond(&changes, &[]), count(&changes));
        }
    }
}
