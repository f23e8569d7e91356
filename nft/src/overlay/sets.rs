//! The sets of the table: what each is for, and what it holds. Pure.
//!
//! A set is named by its kind and a digit for the family: `cluster_cidrs4`.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;

use crate::element::{Contents, Field, Key};
use crate::table::{KeptBy, Set};
use crate::value::{Type, Value};
use crate::words::FAMILIES;
use tweed_core::family::Family;
use tweed_planner::overlay::desired::Ruleset;

/// One kind of set; the table has it once for each family.
#[derive(Debug)]
struct SetKind {
    /// Its name without the digit.
    name: &'static str,
    /// Whether elements are ranges (CIDRs) rather than single addresses.
    interval: bool,
    /// What stands behind the address in a key.
    beside: Option<Type>,
    /// What it should hold, of both families.
    elements: fn(&Ruleset) -> Vec<Element>,
}

/// A range of addresses, and what stands behind it.
type Element = (IpNetwork, Option<Value>);

/// Every set of the table, but for those of [`super::inner`].
const SETS: [SetKind; 5] = [
    SetKind {
        name: "local_cidrs",
        interval: true,
        beside: None,
        elements: |ruleset| alone(&ruleset.local_cidrs),
    },
    SetKind {
        name: "cluster_cidrs",
        interval: true,
        beside: None,
        elements: |ruleset| alone(&ruleset.cluster_cidrs),
    },
    SetKind {
        name: "node_addresses",
        interval: false,
        beside: None,
        elements: |ruleset| alone(&ruleset.node_addresses),
    },
    SetKind {
        name: "underlay_addresses",
        interval: false,
        beside: None,
        elements: |ruleset| alone(&ruleset.underlay_addresses),
    },
    SetKind {
        name: "pod_links",
        interval: false,
        beside: Some(Type::Interface),
        elements: |ruleset| {
            let pairs = ruleset.pod_links.iter();
            pairs
                .map(|(address, link)| (IpNetwork::from(*address), Some(Value::Interface(*link))))
                .collect()
        },
    },
];

fn alone<A: Copy + Into<IpNetwork>>(addresses: &BTreeSet<A>) -> Vec<Element> {
    let element = |address: &A| ((*address).into(), None);
    addresses.iter().map(element).collect()
}

impl SetKind {
    /// The set's name in the kernel.
    fn of(&self, family: Family) -> String {
        let digit = match family {
            Family::V4 => '4',
            Family::V6 => '6',
        };
        format!("{}{digit}", self.name)
    }
}

/// The declarations of the sets of all kinds.
pub(super) fn sets() -> Vec<Set> {
    let set = |kind: &SetKind, family| Set {
        name: kind.of(family),
        key: std::iter::once(match family {
            Family::V4 => Type::Ipv4,
            Family::V6 => Type::Ipv6,
        })
        .chain(kind.beside)
        .collect(),
        data: None,
        interval: kind.interval,
        kept_by: KeptBy::Keeper,
    };
    SETS.iter()
        .flat_map(|kind| FAMILIES.map(|family| set(kind, family)))
        .collect()
}

/// What the sets should hold. A CIDR that lies in another is left out, since
/// elements of one set must not overlap; neighbouring CIDRs stay apart, so that
/// one Node more or less changes nobody else's element.
pub(super) fn contents(ruleset: &Ruleset) -> Contents {
    let mut contents = Contents::new();
    for kind in &SETS {
        for family in FAMILIES {
            let elements = (kind.elements)(ruleset).into_iter();
            let mut elements: Vec<(Field, Option<Field>)> = elements
                .filter(|(network, _)| Family::of(network.ip()) == family)
                .map(|(network, beside)| (network.into(), beside.map(Field::from)))
                .collect();
            if kind.interval {
                // The wider one of two that start together comes first.
                elements.sort_by(|(a, _), (b, _)| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
                // CIDRs overlap only as a whole.
                elements.dedup_by(|(later, _), (kept, _)| later.last <= kept.last);
            }
            let key = |(field, beside): (Field, Option<Field>)| {
                let fields = std::iter::once(field).chain(beside);
                (fields.collect::<Key>(), None)
            };
            contents.insert(kind.of(family), elements.into_iter().map(key).collect());
        }
    }
    contents
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use tweed_core::keyed::Delta;

    use crate::element::{Elements, apply, count, count_beyond, diff};
    use crate::value::Value;

    fn cidrs(list: &[&str]) -> BTreeSet<IpNetwork> {
        list.iter().map(|cidr| cidr.parse().unwrap()).collect()
    }

    fn fields(elements: &Elements) -> impl Iterator<Item = &Field> {
        elements.keys().flat_map(Key::fields)
    }

    fn texts(elements: &Elements) -> Vec<String> {
        fields(elements)
            .map(|field| format!("{}-{}", field.first, field.last))
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
        let address = || network().prop_map(|network| network.ip());
        let addresses = || prop::collection::btree_set(address(), 0..30);
        let sets = (
            networks(),
            networks(),
            addresses(),
            addresses(),
            prop::collection::btree_set((address(), network()), 0..30),
            prop::collection::btree_set((address(), 1..5_u32), 0..30),
        );
        sets.prop_map(
            |(local_cidrs, cluster_cidrs, node, underlay, vxlan_sources, pod_links)| Ruleset {
                local_cidrs,
                cluster_cidrs,
                node_addresses: node,
                underlay_addresses: underlay,
                vxlan_sources,
                pod_links,
                ..Ruleset::default()
            },
        )
    }

    fn applied(mut contents: Contents, changes: &[crate::element::Change]) -> Contents {
        for change in changes {
            let set = &contents[&change.set];
            let (removed, added) = (change.delta.removed.iter(), change.delta.added.iter());
            let delta = Delta {
                removed: removed.cloned().collect(),
                added: added.cloned().collect(),
            };
            assert!(
                delta.starts_from(set),
                "the kernel refuses to remove what is not there, and nothing is added twice"
            );
        }
        apply(&mut contents, changes);
        contents
    }

    proptest! {
        #[test]
        fn the_diff_makes_what_is_desired_and_is_then_empty(a in ruleset(), b in ruleset()) {
            let desired = contents(&b);
            let after = applied(contents(&a), &diff(&contents(&a), &desired));
            prop_assert_eq!(&after, &desired);
            prop_assert_eq!(diff(&after, &desired), vec![]);
        }

        #[test]
        fn elements_hold_the_same_addresses_as_the_cidrs_and_never_overlap(ruleset in ruleset(), probe in network()) {
            let contents = contents(&ruleset);
            let family = Family::of(probe.ip());
            let elements = &contents[&SETS[1].of(family)];
            let mut end = None;
            for field in fields(elements) {
                prop_assert!(end.is_none_or(|end| field.first > end));
                end = Some(field.last);
            }
            for address in [probe.ip(), probe.network(), probe.broadcast()] {
                prop_assert_eq!(
                    ruleset.cluster_cidrs.iter().any(|cidr| cidr.contains(address)),
                    fields(elements).any(|field| {
                        let address = Value::Address(address);
                        field.first <= address && address <= field.last
                    })
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
