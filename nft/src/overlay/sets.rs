//! The sets of the table: what each is for, and what it holds. Pure.

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_planner::overlay::desired::Ruleset;

use crate::element::{Contents, Element, Elements, Key};
use crate::schema::{ADDRESS, Keys, PlannedSet, Row, Schema, row};
use crate::table::KeptBy;
use crate::value::{Type, Value};

/// Every set of the table, but for those of [`super::inner`].
static ROWS: [Row<Ruleset>; 5] = [
    row!("local_cidrs" => local_cidrs, CIDR),
    row!("cluster_cidrs" => cluster_cidrs, CIDR),
    row!("node_addresses" => node_addresses, ADDRESS),
    row!("underlay_addresses" => underlay_addresses, ADDRESS),
    row!("pod_links" => pod_links, POD_LINK),
];

impl Schema for Ruleset {
    const KEPT_BY: KeptBy = KeptBy::Keeper;

    fn sets() -> impl Iterator<Item = PlannedSet<Self>> {
        ROWS.iter().flat_map(Row::sets)
    }
}

const CIDR: Keys<IpNetwork> = Keys {
    types: &[Type::Ipv4],
    interval: true,
    family: Some(|cidr| Family::of(cidr.ip())),
    key: |cidr| (*cidr).into(),
};

const POD_LINK: Keys<(IpAddr, u32)> = Keys {
    types: &[Type::Ipv4, Type::Interface],
    interval: false,
    family: Some(|(address, _)| Family::of(*address)),
    key: |(address, link)| Key::of([Value::Address(*address), Value::Index(*link)]),
};

/// What the sets should hold. A CIDR that lies in another is left out, since
/// elements of one set must not overlap; neighbouring CIDRs stay apart, so that
/// one Node more or less changes nobody else's element.
pub(super) fn contents(ruleset: &Ruleset) -> Contents {
    let contents = Ruleset::sets().map(|set| {
        let elements = set.elements(ruleset);
        let elements = if set.declaration().interval {
            merged(elements)
        } else {
            elements.collect()
        };
        (set.name(), elements)
    });
    contents.collect()
}

/// CIDRs without those that lie in others.
fn merged(elements: impl Iterator<Item = Element>) -> Elements {
    let ends = |(key, _): &Element| {
        let field = key.fields().first();
        field.map(|field| (field.first, Reverse(field.last)))
    };
    let last = |cidr: &Element| ends(cidr).map(|(_, Reverse(last))| last);
    let mut elements: Vec<Element> = elements.collect();
    // The wider one of two that start together comes first.
    elements.sort_by_key(ends);
    // CIDRs overlap only as a whole.
    elements.dedup_by(|later, kept| last(later) <= last(kept));
    elements.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use tweed_core::keyed::Delta;

    use crate::element::{Field, apply, count, count_beyond, diff};

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
            let elements = &contents[&ROWS[1].of(family).name()];
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
