mod doubtful;
mod render;
mod underlay;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use ipnetwork::IpNetwork;

use super::*;
use crate::overlay::cluster::Cluster;
use crate::overlay::desired::{Desired, Ruleset};
use crate::overlay::host::{AddressState, ConnectedRoute, HostAddress, HostFacts, Interface};
use crate::tests::fixture::{NodeFixture, Nodes, config, node};
use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_core::problem::Effect;

/// A machine with these addresses on eth0, each with its connected route.
fn host(mtu: u32, addresses: &[&str]) -> HostFacts {
    let networks: Vec<IpNetwork> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    let addresses = networks.iter().map(|network| HostAddress {
        network: *network,
        state: AddressState::Usable,
    });
    HostFacts {
        connected: networks
            .iter()
            .map(|network| ConnectedRoute {
                destination: IpNetwork::new(network.network(), network.prefix()).unwrap(),
                interface: 2,
                by_hand: false,
            })
            .collect(),
        interfaces: BTreeMap::from([(
            2,
            Interface {
                name: "eth0".into(),
                mtu,
                mtu_v6: mtu,
                up: true,
                loopback: false,
                dummy: false,
                port: false,
                addresses: addresses.collect(),
            },
        )]),
        paths: BTreeMap::new(),
        last_pod_mtu: None,
    }
}

fn v4_host() -> HostFacts {
    host(1500, &["192.0.2.1/24"])
}

fn dual_host() -> HostFacts {
    host(1500, &["192.0.2.1/24", "2001:db8::1/64"])
}

fn v4() -> Nodes {
    Nodes::new(
        node("me").cidr("10.244.0.0/24").internal("192.0.2.1"),
        [
            node("a").cidr("10.244.1.0/24").internal("192.0.2.2"),
            node("b").cidr("10.244.2.0/24").internal("198.51.100.3"),
        ],
    )
}

fn v6() -> Nodes {
    Nodes::new(
        node("me").cidr("fd00:0:0::/64").internal("2001:db8::1"),
        [
            node("a").cidr("fd00:0:0:1::/64").internal("2001:db8::2"),
            node("b").cidr("fd00:0:0:2::/64").internal("2001:db8:1::3"),
        ],
    )
}

fn dual() -> Nodes {
    let node = |name, v4: &str, v6: &str, ip4: &str, ip6: &str| {
        node(name).cidr(v4).cidr(v6).internal(ip4).internal(ip6)
    };
    Nodes::new(
        node(
            "me",
            "10.244.0.0/24",
            "fd00::/64",
            "192.0.2.1",
            "2001:db8::1",
        ),
        [
            node(
                "a",
                "10.244.1.0/24",
                "fd00:0:0:1::/64",
                "192.0.2.2",
                "2001:db8::2",
            ),
            node(
                "b",
                "10.244.2.0/24",
                "fd00:0:0:2::/64",
                "198.51.100.3",
                "2001:db8:1::3",
            ),
        ],
    )
}

/// One row, one golden file in `snapshots/`.
macro_rules! golden {
    ($($name:ident: $config:expr, $cluster:expr, $host:expr;)*) => {$(
        #[test]
        fn $name() {
            let plan = plan(&config($config), &$cluster.snapshot(), &$host);
            insta::assert_snapshot!(stringify!($name), render::plan(&plan));
        }
    )*};
}

golden! {
    vxlan_ipv4: "", v4(), v4_host();
    vxlan_ipv6: "", v6(), host(1500, &["2001:db8::1/64"]);
    vxlan_dual_over_ipv4: "", dual(), dual_host();
    vxlan_dual_over_ipv6: "--underlay-family ipv6", dual(), dual_host();
    vxlan_dual_without_own_ipv6: "", dual(), v4_host();
    vxlan_with_cluster_cidr: "--cluster-cidr 10.244.0.0/16", v4(), v4_host();
    vxlan_with_everything_set:
        "--vni 7 --vxlan-port 4789 --mtu 1400 --masquerade random --masquerade-nodes off", v4(), v4_host();
    direct_ipv4: "--backend direct", v4(), v4_host();
    direct_dual: "--backend direct --masquerade off", dual(), dual_host();
    cross_subnet_dual: "--backend cross-subnet", dual(), dual_host();
    underlay_picked: "--underlay 198.51.100.0/24", Nodes::new(
        node("me").cidr("10.244.0.0/24").internal("192.0.2.1").address("ExternalIP", "198.51.100.1"),
        [
            node("a").cidr("10.244.1.0/24").internal("192.0.2.2").internal("198.51.100.2"),
            node("b").cidr("10.244.2.0/24").internal("192.0.2.3"),
        ],
    ), host(9000, &["192.0.2.1/24", "198.51.100.1/24"]);
    peers_in_dispute: "", Nodes::new(
        node("me").cidr("10.244.0.0/24").internal("192.0.2.1"),
        [
            node("a").created(1).cidr("10.244.1.0/24").internal("192.0.2.2"),
            node("copy").created(2).cidr("10.244.1.0/24").internal("192.0.2.2"),
            node("default").created(2).cidr("0.0.0.0/0").internal("192.0.2.3"),
            node("no-address").created(2).cidr("10.244.4.0/24"),
            node("no-cidr").created(2).internal("192.0.2.5"),
        ],
    ), v4_host();
}

fn own(cidrs: &[&str], addresses: &[&str]) -> Nodes {
    let own = cidrs.iter().fold(node("me"), |node, cidr| node.cidr(cidr));
    let own = addresses.iter().fold(own, |node, ip| node.internal(ip));
    Nodes::new(own, [node("a").cidr("10.244.1.0/24").internal("192.0.2.2")])
}

fn elder(cidr: &str, address: &str) -> Nodes {
    Nodes::new(
        node("me")
            .created(2)
            .cidr("10.244.0.0/24")
            .internal("192.0.2.1"),
        [node("a").created(1).cidr(cidr).internal(address)],
    )
}

#[test]
fn ipv6_pods_are_masqueraded_unless_their_addresses_are_the_internets() {
    let masquerades = |flags: &str, cidr: &str| {
        let own = own(&["10.244.0.0/24", cidr], &["192.0.2.1"]);
        let plan = plan(&config(flags), &own.snapshot(), &v4_host());
        let ruleset = plan.network.unwrap().desired.ruleset;
        (ruleset.masquerade.is_some(), ruleset.masquerade_ipv6)
    };
    for (cidr, auto) in [
        ("fd00:0:0:1::/64", true),
        ("fc00:0:0:1::/64", true),
        ("2001:db8:1:1::/64", false),
        ("3fff:0:0:1::/64", false),
        ("4000:0:0:1::/64", true),
    ] {
        assert_eq!(masquerades("", cidr), (true, auto), "{cidr}");
        assert_eq!(masquerades("--masquerade-ipv6 on", cidr), (true, true));
        assert_eq!(masquerades("--masquerade-ipv6 off", cidr), (true, false));
    }
    let own = own(&["10.244.0.0/24"], &["192.0.2.1"]);
    let plan = plan(&config(""), &own.snapshot(), &v4_host());
    assert!(plan.network.unwrap().desired.ruleset.masquerade_ipv6);
}

/// Nobody here could use the way there, nor come from it.
#[test]
fn of_a_family_that_the_own_pods_do_not_have_nothing_is_planned() {
    let cluster = dual();
    let others = cluster.snapshot().others.into_iter().cloned();
    let me = node("me").cidr("10.244.0.0/24").internal("192.0.2.1");
    let nodes = Nodes::new(me, others);
    for flags in ["", "--masquerade-nodes off"] {
        let plan = plan(&config(flags), &nodes.snapshot(), &v4_host());
        assert_eq!(plan.problems, []);
        let desired = plan.network.unwrap().desired;
        assert!(desired.routes.keys().all(|key| key.destination.is_ipv4()));
        let sources = &desired.ruleset.vxlan_sources;
        assert!(sources.len() >= 2);
        assert!(sources.iter().all(|(_, inner)| inner.is_ipv4()));
    }
}

/// One row, one test: what makes the plan hold, and the problems that say so.
macro_rules! holds {
    ($($name:ident: $config:expr, $cluster:expr, $host:expr => [$(($kind:expr, $effect:ident)),+];)*) => {$(
        #[test]
        fn $name() {
            let plan = plan(&config($config), &$cluster.snapshot(), &$host);
            assert_eq!(plan.network, None);
            let problems: Vec<_> = plan.problems.iter()
                .filter(|problem| problem.object != "a")
                .map(|problem| (problem.kind.word(), problem.effect))
                .collect();
            assert_eq!(problems, [$(($kind, Effect::$effect)),+]);
        }
    )*};
}

holds! {
    without_a_pod_cidr: "", own(&[], &["192.0.2.1"]), v4_host()
        => [("no-pod-cidr", NewPods)];
    with_a_pod_cidr_that_is_none: "", own(&["x"], &["192.0.2.1"]), v4_host()
        => [("pod-cidr-refused", RunningPods)];
    with_one_of_two_pod_cidrs_refused: "", own(&["10.244.0.0/24", "fe80::/64"], &["192.0.2.1"]), v4_host()
        => [("pod-cidr-refused", RunningPods)];
    with_a_pod_cidr_that_another_node_has: "", elder("10.244.0.0/23", "192.0.2.2"), v4_host()
        => [("pod-cidr-refused", RunningPods)];
    with_a_pod_cidr_that_this_machine_is_connected_to: "", v4(), host(1500, &["192.0.2.1/24", "10.244.0.1/24"])
        => [("pod-cidr-refused", NewPods)];
    with_an_address_on_no_interface_inside_an_older_nodes_range:
        "", elder("192.0.0.0/16", "198.51.100.2"), host(1500, &["192.0.2.77/24"])
        => [("node-address-refused", RunningPods)];
    without_an_address: "", own(&["10.244.0.0/24"], &[]), v4_host()
        => [("no-underlay-address", RunningPods)];
    without_anything: "", own(&[], &[]), v4_host()
        => [("no-pod-cidr", NewPods), ("no-underlay-address", RunningPods)];
    without_an_address_of_the_family: "--underlay-family ipv6", v4(), v4_host()
        => [("no-underlay-address", RunningPods)];
    without_an_address_in_the_underlay: "--underlay 203.0.113.0/24", v4(), v4_host()
        => [("no-underlay-address", RunningPods)];
    with_an_address_on_no_interface: "", v4(), host(1500, &["192.0.2.77/24"])
        => [("underlay-address-missing", RunningPods)];
    with_less_mtu_than_ipv6_needs: "", v6(), host(1349, &["2001:db8::1/64"])
        => [("mtu-too-small", NewPods)];
    with_less_mtu_than_ipv4_needs: "", v4(), host(625, &["192.0.2.1/24"])
        => [("mtu-too-small", NewPods)];
    with_hardly_an_mtu_at_all: "", v4(), host(0, &["192.0.2.1/24"])
        => [("mtu-too-small", NewPods)];
}

#[test]
fn the_least_mtu_is_enough() {
    let plan = plan(
        &config(""),
        &v6().snapshot(),
        &host(1350, &["2001:db8::1/64"]),
    );
    assert_eq!(plan.network.unwrap().pod_mtu, 1280);
}

#[test]
fn an_underlay_that_is_down_is_named_and_nothing_is_taken_away() {
    let mut host = v4_host();
    host.interfaces.get_mut(&2).unwrap().up = false;
    let down = plan(&config(""), &v4().snapshot(), &host);
    assert_eq!(
        down.network,
        plan(&config(""), &v4().snapshot(), &v4_host()).network
    );
    assert_eq!(down.problems[0].kind.word(), "underlay-down");
    assert_eq!(down.problems[0].effect, Effect::RunningPods);
}

#[test]
fn an_mtu_that_the_underlay_does_not_carry_is_named() {
    let plan = plan(&config("--mtu 1451"), &v4().snapshot(), &v4_host());
    assert_eq!(plan.network.unwrap().pod_mtu, 1451);
    assert_eq!(plan.problems[0].kind.word(), "mtu-too-big");
    assert_eq!(plan.problems[0].effect, Effect::Warning);
    assert!(plan.problems[0].cure.contains("1450"));
}

#[test]
fn pods_outside_the_own_range_are_told_apart() {
    let network = plan(&config(""), &v4().snapshot(), &v4_host())
        .network
        .unwrap();
    assert!(network.holds("10.244.0.9".parse().unwrap()));
    assert!(!network.holds("10.244.1.9".parse().unwrap()));
    assert!(!network.holds("fd00::9".parse().unwrap()));
}

fn numbered(number: u16) -> Node {
    let [high, low] = number.to_be_bytes();
    node(&format!("n{number}"))
        .created(1)
        .cidr(&format!("10.{}.{low}.0/24", 128 + high))
        .internal(&format!("192.0.{high}.{low}"))
}

fn many(numbers: impl IntoIterator<Item = u16>) -> Nodes {
    let me = node("me").cidr("10.244.0.0/24").internal("198.51.100.1");
    Nodes::new(me, numbers.into_iter().map(numbered))
}

fn many_host() -> HostFacts {
    host(1500, &["198.51.100.1/24"])
}

/// Cost grows with the change: one Node of 5,000 is a neighbour, an FDB entry and a route, and
/// one element in each set of nftables.
#[test]
fn one_node_of_5000_costs_three_objects() {
    let config = config("");
    let plan = |numbers: std::ops::RangeInclusive<u16>| {
        plan(&config, &many(numbers).snapshot(), &many_host())
            .network
            .unwrap()
            .desired
    };
    let (before, after) = (plan(1..=4999), plan(1..=5000));
    let lines =
        |desired: &Desired| -> BTreeSet<String> { render::objects(desired).into_iter().collect() };
    let (old, new) = (lines(&before), lines(&after));
    assert!(old.is_subset(&new));
    let mac = crate::overlay::vtep::mac("n5000");
    assert_eq!(
        new.difference(&old).cloned().collect::<Vec<_>>(),
        [
            format!("fdb {mac} dst 192.0.19.136 dev tweed.1"),
            format!("neighbour 10.147.136.0 lladdr {mac} dev tweed.1"),
            "route 10.147.136.0/24 via 10.147.136.0 dev tweed.1 onlink metric 0".to_owned(),
        ]
    );
    let sizes = |r: &Ruleset| {
        [
            r.local_cidrs.len(),
            r.cluster_cidrs.len(),
            r.node_addresses.len(),
            r.vxlan_sources.len(),
        ]
    };
    assert_eq!(sizes(&before.ruleset), [1, 5000, 5000, 4999]);
    assert_eq!(sizes(&after.ruleset), [1, 5001, 5001, 5000]);
}

#[test]
fn a_node_of_5000_with_another_address_costs_one_object() {
    let config = config("");
    let desired = |node: Node| {
        let cluster = Nodes::new(many([]).own, (1..=5000).map(numbered).chain([node]));
        plan(&config, &cluster.snapshot(), &many_host())
            .network
            .unwrap()
            .desired
    };
    let lines =
        |desired: Desired| -> BTreeSet<String> { render::objects(&desired).into_iter().collect() };
    let old = lines(desired(numbered(7)));
    let mut moved = numbered(7);
    moved.addresses[0].address = "203.0.113.7".into();
    let new = lines(desired(moved));
    let mac = crate::overlay::vtep::mac("n7");
    assert_eq!(
        new.difference(&old).cloned().collect::<Vec<_>>(),
        [format!("fdb {mac} dst 203.0.113.7 dev tweed.1")]
    );
    assert_eq!(new.len(), old.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The plan is a function of the Nodes that there are, not of how they
    /// became known.
    #[test]
    fn the_order_of_events_never_matters(
        numbers in prop::collection::btree_set(1..200_u16, 0..30),
        noise in prop::collection::vec((any::<bool>(), 1..200_u16), 0..30),
        relist in any::<bool>(),
    ) {
        let config = config("");
        let mut cluster = Cluster::new("me");
        let me = many([]).own;
        let mut feed = |event| { let _ = cluster.apply(event); };
        feed(Event::Init);
        feed(Event::InitApply(me.clone()));
        feed(Event::InitDone);
        for (appears, number) in noise {
            feed(if appears {
                Event::Apply(numbered(number).cidr("10.244.0.0/16"))
            } else {
                Event::Delete(format!("n{number}").into())
            });
        }
        if relist {
            feed(Event::Init);
            feed(Event::InitApply(me));
            for number in numbers.iter().rev() {
                feed(Event::InitApply(numbered(*number)));
            }
            feed(Event::InitDone);
        } else {
            for number in 1..200 {
                feed(if numbers.contains(&number) {
                    Event::Apply(numbered(number))
                } else {
                    Event::Delete(format!("n{number}").into())
                });
            }
        }
        let events = plan(&config, &cluster.snapshot().unwrap(), &many_host());
        let direct = plan(&config, &many(numbers).snapshot(), &many_host());
        prop_assert!(direct.network.is_some());
        prop_assert_eq!(events, direct);
    }
}
