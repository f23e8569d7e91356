mod machine;

use proptest::prelude::*;

use super::*;
use crate::overlay::vtep;
use crate::tests::fixture::{NodeFixture as _, Nodes, node};

const V4: fn() -> BTreeSet<Family> = || BTreeSet::from([Family::V4]);

fn both() -> BTreeSet<Family> {
    BTreeSet::from([Family::V4, Family::V6])
}

fn cluster(nodes: impl IntoIterator<Item = Node>) -> Nodes {
    Nodes::new(node("me"), nodes)
}

fn nets(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The refusals as `node: claim it why`.
fn said(verdict: &Verdict<'_>) -> Vec<String> {
    let refusals = verdict.refusals.iter();
    refusals
        .map(|RefusedClaim { node, claim, why }| format!("{node}: {claim} {why}"))
        .collect()
}

/// One row, one test: Nodes besides `me` and rules in, refusals out.
macro_rules! refused {
    ($($name:ident: [$($node:expr),*], $rules:expr => [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let cluster = cluster([$($node),*]);
            let verdict = judge(&cluster.snapshot(), &$rules);
            let expected: Vec<&str> = vec![$($said),*];
            assert_eq!(said(&verdict), expected);
        }
    )*};
}

fn plain() -> Rules<'static> {
    Rules {
        families: both(),
        ..Rules::default()
    }
}

fn inside(cluster_cidrs: &[IpNetwork]) -> Rules<'_> {
    Rules {
        cluster_cidrs,
        ..plain()
    }
}

refused! {
    good_nodes_lose_nothing: [
        node("a").cidr("10.244.1.0/24").cidr("fd00:1::/64").internal("192.0.2.1").internal("2001:db8::1"),
        node("b").cidr("10.244.2.0/24").cidr("fd00:2::/64").internal("192.0.2.2").address("Hostname", "b")
    ], plain() => [];
    a_node_without_anything_is_no_refusal: [node("a")], plain() => [];
    words_that_are_no_cidr: [node("a").cidr("ten")], plain() =>
        ["a: pod CIDR ten is not a network address, '/' and a prefix length"];
    host_bits: [node("a").cidr("10.244.1.1/24")], plain() =>
        ["a: pod CIDR 10.244.1.1/24 has bits set behind its prefix (the network is 10.244.1.0)"];
    the_default_range: [node("a").cidr("0.0.0.0/0")], plain() =>
        ["a: pod CIDR 0.0.0.0/0 takes in every address there is"];
    two_ranges_of_a_family: [node("a").cidr("10.244.1.0/24").cidr("10.244.2.0/24")], plain() =>
        ["a: pod CIDR 10.244.2.0/24 is a second range of its family beside 10.244.1.0/24"];
    outside_the_cluster: [
        node("a").cidr("10.245.1.0/24").cidr("fd00:1::/64"),
        node("b").cidr("10.0.0.0/8")
    ], inside(&nets(&["10.244.0.0/16"])) => [
        "a: pod CIDR 10.245.1.0/24 is outside --cluster-cidr",
        "b: pod CIDR 10.0.0.0/8 is outside --cluster-cidr"
    ];
    wider_than_the_cluster_and_with_its_first_address: [node("a").cidr("10.244.0.0/15")], inside(&nets(&["10.244.0.0/16"])) =>
        ["a: pod CIDR 10.244.0.0/15 is outside --cluster-cidr"];
    an_address_inside_the_cluster_cidr: [node("a").internal("10.244.9.9")], inside(&nets(&["10.244.0.0/16"])) =>
        ["a: address 10.244.9.9 is inside --cluster-cidr 10.244.0.0/16, which is for pods"];
    the_younger_loses_an_overlap: [
        node("old").created(1).cidr("10.244.1.0/24"),
        node("a").created(2).cidr("10.244.0.0/16")
    ], plain() => ["a: pod CIDR 10.244.0.0/16 overlaps 10.244.1.0/24 of Node old, which is older"];
    no_age_is_the_oldest: [
        node("z").cidr("10.244.0.0/16"),
        node("a").created(i64::MIN).cidr("10.244.1.0/24")
    ], plain() => ["a: pod CIDR 10.244.1.0/24 overlaps 10.244.0.0/16 of Node z, which is older"];
    of_one_age_the_uid_decides: [
        node("a").created(1).uid("2").cidr("10.244.1.0/24"),
        node("b").created(1).uid("1").cidr("10.244.1.0/24")
    ], plain() => ["a: pod CIDR 10.244.1.0/24 overlaps 10.244.1.0/24 of Node b, which is older"];
    of_one_uid_the_name_decides: [
        node("b").cidr("10.244.1.0/24"),
        node("a").cidr("10.244.1.0/24")
    ], plain() => ["b: pod CIDR 10.244.1.0/24 overlaps 10.244.1.0/24 of Node a, which is older"];
    a_loser_blocks_nobody: [
        node("a").created(1).cidr("10.244.1.0/24"),
        node("b").created(2).cidr("10.244.0.0/16"),
        node("c").created(3).cidr("10.244.3.0/24")
    ], plain() => ["b: pod CIDR 10.244.0.0/16 overlaps 10.244.1.0/24 of Node a, which is older"];
    a_range_over_anothers_address: [
        node("a").created(1).internal("10.244.1.7"),
        node("b").created(2).cidr("10.244.1.0/24")
    ], plain() => ["b: pod CIDR 10.244.1.0/24 takes in 10.244.1.7, an address of Node a"];
    a_range_over_the_nodes_own_address: [node("a").internal("10.244.1.7").cidr("10.244.1.0/24")], plain() =>
        ["a: pod CIDR 10.244.1.0/24 takes in 10.244.1.7, an address of Node a"];
    an_address_in_an_older_nodes_range: [
        node("a").created(2).internal("10.244.1.7"),
        node("b").created(1).cidr("10.244.1.0/24")
    ], plain() => ["a: address 10.244.1.7 is inside pod CIDR 10.244.1.0/24 of Node b, which is older"];
    words_that_are_no_address: [
        node("a").internal("somewhere").internal("::ffff:192.0.2.1").internal("127.0.0.1").internal("192.0.2.1")
    ], plain() => [
        "a: address 127.0.0.1 takes in the loopback addresses",
        "a: address ::ffff:192.0.2.1 takes in the IPv4-mapped addresses",
        "a: address somewhere is not an IP address"
    ];
}

#[test]
fn the_address_is_the_first_internal_ip_of_its_family() {
    let a = node("a")
        .address("ExternalIP", "198.51.100.1")
        .internal("2001:db8::1")
        .internal("192.0.2.1")
        .internal("192.0.2.2");
    let cluster = cluster([a]);
    let verdict = judge(&cluster.snapshot(), &plain());
    let addresses = &verdict.members["a"].addresses;
    assert_eq!(addresses[&Family::V4].to_string(), "192.0.2.1");
    assert_eq!(addresses[&Family::V6].to_string(), "2001:db8::1");
    assert_eq!(
        verdict
            .node_addresses
            .iter()
            .map(IpAddr::to_string)
            .collect::<Vec<_>>(),
        ["192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8::1"]
    );
}

#[test]
fn an_underlay_picks_any_address_that_is_in_it() {
    let a = node("a")
        .internal("192.0.2.1")
        .address("ExternalIP", "198.51.100.1")
        .internal("198.51.100.2");
    let b = node("b").internal("192.0.2.2");
    let cluster = cluster([a, b]);
    let rules = Rules {
        underlay: Some("198.51.100.0/24".parse().unwrap()),
        families: V4(),
        ..Rules::default()
    };
    let verdict = judge(&cluster.snapshot(), &rules);
    assert_eq!(
        verdict.members["a"].addresses[&Family::V4].to_string(),
        "198.51.100.1"
    );
    assert!(verdict.members["b"].addresses.is_empty());
    assert!(verdict.refusals.is_empty());
}

#[test]
fn an_address_of_several_nodes_is_believed_of_all_the_oldest_first() {
    let shares = |name, created| node(name).created(created).internal("192.0.2.1");
    let cluster = cluster([shares("a", 3), shares("b", 1), shares("c", 2)]);
    let verdict = judge(&cluster.snapshot(), &plain());
    assert_eq!(said(&verdict), [""; 0]);
    let address = "192.0.2.1".parse().unwrap();
    assert_eq!(
        verdict.shared,
        BTreeMap::from([(address, vec!["b", "c", "a"])])
    );
    for name in ["a", "b", "c"] {
        assert_eq!(verdict.members[name].addresses[&Family::V4], address);
    }
}

#[test]
fn only_addresses_that_nodes_reach_each_other_by_are_underlay_addresses() {
    let a = node("a")
        .address("ExternalIP", "198.51.100.1")
        .internal("192.0.2.1")
        .internal("192.0.2.2")
        .internal("2001:db8::1");
    let b = node("b").internal("192.0.2.3").internal("fd00:1::9");
    let c = node("c").created(1).cidr("fd00:1::/64");
    let cluster = cluster([a, b, c]);
    for families in [V4(), both()] {
        let rules = Rules {
            families,
            ..Rules::default()
        };
        let accepted = judge(&cluster.snapshot(), &rules).underlay_addresses;
        let addresses: Vec<String> = accepted.iter().map(IpAddr::to_string).collect();
        match rules.families.len() {
            // Nobody needs the address inside of a range, so the range counts.
            1 => assert_eq!(addresses, ["192.0.2.1", "192.0.2.3", "2001:db8::1"]),
            _ => assert_eq!(
                addresses,
                ["192.0.2.1", "192.0.2.3", "2001:db8::1", "fd00:1::9"]
            ),
        }
    }
}

#[test]
fn an_address_that_is_not_used_is_not_fought_over() {
    let a = node("a").internal("192.0.2.1").internal("198.51.100.1");
    let b = node("b").internal("192.0.2.2").internal("198.51.100.1");
    let c = node("c").internal("192.0.2.3").internal("2001:db8::1");
    let d = node("d").internal("192.0.2.4").internal("2001:db8::1");
    let cluster = cluster([a, b, c, d]);
    let rules = Rules {
        families: V4(),
        ..Rules::default()
    };
    assert_eq!(said(&judge(&cluster.snapshot(), &rules)), [""; 0]);
}

#[test]
fn no_node_address_is_inside_a_pod_cidr() {
    let a = node("a").cidr("10.244.1.0/24").internal("192.0.2.1");
    let b = node("b").internal("192.0.2.2").internal("10.244.1.0");
    let cluster = cluster([a, b]);
    let listed = judge(&cluster.snapshot(), &plain()).node_addresses;
    assert_eq!(
        listed.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        ["192.0.2.1", "192.0.2.2"]
    );
}

/// The names were searched for: of two, one pair in 2^46 has the same MAC.
#[test]
fn a_mac_that_another_has_is_refused() {
    let (young, old) = ("n20629104", "n19369752");
    let cluster = cluster([node(young).created(2), node(old).created(1)]);
    let verdict = judge(&cluster.snapshot(), &plain());
    assert_eq!(
        said(&verdict),
        [format!(
            "{young}: VTEP MAC {} is that of Node {old} too, which is older",
            vtep::mac(old)
        )]
    );
    assert_eq!(verdict.members[young].mac, None);
    assert_eq!(verdict.members[old].mac, Some(vtep::mac(old)));
}

fn any_cidr() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..8_u32, 22..28_u8).prop_map(|(third, prefix)| {
            let ip: IpAddr = [10, 244, u8::try_from(third).unwrap(), 128].into();
            IpNetwork::new(IpNetwork::new(ip, prefix).unwrap().network(), prefix)
                .unwrap()
                .to_string()
        }),
        2 => (0..4_u16).prop_map(|third| format!("fd00:0:{third}::/48")),
        1 => Just("fd00::/32".to_owned()),
        1 => Just("10.244.3.9/24".to_owned()),
        1 => Just("nothing".to_owned()),
    ]
}

fn any_address() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..6_u8).prop_map(|last| format!("192.0.2.{last}")),
        1 => (0..8_u8).prop_map(|third| format!("10.244.{third}.130")),
        1 => (0..4_u8).prop_map(|last| format!("fd00:0:1::{last}")),
        1 => Just("127.0.0.1".to_owned()),
    ]
}

fn any_cluster() -> impl Strategy<Value = Vec<Node>> {
    let one = (
        prop::option::of(0..3_i64),
        0..3_u8,
        prop::collection::vec(any_cidr(), 0..3),
        prop::collection::vec(any_address(), 0..3),
    );
    prop::collection::vec(one, 0..12).prop_map(|nodes| {
        let named = nodes.into_iter().enumerate();
        named
            .map(|(index, (created, uid, cidrs, addresses))| {
                let mut node = node(&format!("n{index}")).uid(&uid.to_string());
                node.created = created;
                node.pod_cidrs = cidrs;
                addresses
                    .iter()
                    .fold(node, |node, address| node.internal(address))
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_nodes_never_matters(
        (nodes, shuffled) in any_cluster().prop_flat_map(|nodes| {
            (Just(nodes.clone()), Just(nodes).prop_shuffle())
        }),
        own in 0..12_usize,
    ) {
        // Nor does it matter on which Node it is decided.
        let rules = plain();
        let cluster = cluster(nodes.clone());
        let verdict = judge(&cluster.snapshot(), &rules);
        let mut others = shuffled;
        others.push(node("me"));
        let own = others.swap_remove(own % others.len());
        let elsewhere = Nodes::new(own, others);
        prop_assert_eq!(verdict, judge(&elsewhere.snapshot(), &rules));
    }

    #[test]
    fn what_is_accepted_is_disjoint(nodes in any_cluster()) {
        let cluster = cluster(nodes);
        let verdict = judge(&cluster.snapshot(), &plain());
        let ranges: Vec<_> = (verdict.members.values()).flat_map(|m| &m.pod_cidrs).collect();
        let addresses: Vec<_> = (verdict.members.values()).flat_map(|m| m.addresses.values()).collect();
        for (i, a) in ranges.iter().enumerate() {
            for b in &ranges[..i] {
                prop_assert!(!a.contains(b.network()) && !b.contains(a.network()), "{} {}", a, b);
            }
            for address in &addresses {
                prop_assert!(!a.contains(**address), "{} {}", a, address);
            }
        }
        // And an address is one Node's, or is reported as that of several.
        let shared: usize = verdict.shared.values().map(|nodes| nodes.len() - 1).sum();
        let distinct: BTreeSet<_> = addresses.iter().collect();
        prop_assert_eq!(distinct.len() + shared, addresses.len());
    }

    #[test]
    fn every_word_is_accepted_or_refused(nodes in any_cluster()) {
        let cluster = cluster(nodes.clone());
        let verdict = judge(&cluster.snapshot(), &plain());
        for node in &nodes {
            for cidr in &node.pod_cidrs {
                let claim = Claim::pod_cidr(cidr);
                let accepted = verdict.members[node.name.as_str()]
                    .pod_cidrs
                    .iter()
                    .any(|accepted| cidr.parse() == Ok(*accepted));
                let refused = (verdict.refusals.iter())
                    .any(|refusal| refusal.node == node.name && refusal.claim == claim);
                prop_assert!(accepted || refused, "{} {}", node.name, cidr);
            }
        }
    }

    #[test]
    fn a_loser_that_goes_away_changes_nothing_for_the_others(nodes in any_cluster()) {
        let before = cluster(nodes.clone());
        let verdict = judge(&before.snapshot(), &plain());
        for refusal in &verdict.refusals {
            let mut fewer = nodes.clone();
            for node in &mut fewer {
                if node.name == refusal.node {
                    node.pod_cidrs.retain(|cidr| Claim::pod_cidr(cidr) != refusal.claim);
                }
            }
            let Claim::PodCidr(_) = refusal.claim else { continue };
            let cidrs = |nodes: &[Node]| nodes.iter().map(|n| n.pod_cidrs.len()).sum::<usize>();
            if cidrs(&fewer) + 1 != cidrs(&nodes) {
                // The Node has the same text twice, and the first was accepted.
                continue;
            }
            let after = cluster(fewer);
            prop_assert_eq!(&judge(&after.snapshot(), &plain()).members, &verdict.members);
        }
    }
}
