//! A plan changed by the deltas of single Nodes is the plan of all of them.

use ipnetwork::IpNetwork;
use proptest::prelude::*;
use tweed_core::keyed;

use super::*;
use crate::overlay::desired::{Desired, Ruleset};
use crate::overlay::host::{AddressState, ConnectedRoute, HostAddress, Interface, Path};
use crate::tests::fixture::{NodeFixture as _, config, node};
use tweed_core::object::Event;

mod hosts;
mod ways;

/// A machine with 192.0.2.1/24.
fn host() -> HostFacts {
    let network: IpNetwork = "192.0.2.1/24".parse().unwrap();
    HostFacts {
        connected: [ConnectedRoute {
            destination: "192.0.2.0/24".parse().unwrap(),
            interface: 2,
            by_hand: false,
        }]
        .into(),
        interfaces: [(
            2,
            Interface {
                name: "eth0".into(),
                mtu: 1500,
                mtu_v6: 1500,
                up: true,
                loopback: false,
                dummy: false,
                port: false,
                addresses: vec![HostAddress {
                    network,
                    state: AddressState::Usable,
                }],
            },
        )]
        .into(),
        paths: BTreeMap::new(),
        last_pod_mtu: None,
    }
}

fn me() -> Node {
    node("me").cidr("10.244.0.0/24").internal("192.0.2.1")
}

/// A Node with claims of its own; some values of `odd` make it another's too,
/// or invalid.
fn other(number: u8, odd: u8) -> Node {
    let name = format!("n{number}");
    let honest = node(&name)
        .created(i64::from(number))
        .cidr(&format!("10.244.{number}.0/24"))
        .internal(&format!("192.0.2.{number}"));
    match odd {
        // Claims of n7: its range, one around it, its address, one in its range.
        1 => node(&name).cidr("10.244.7.0/24").internal("192.0.2.200"),
        2 => node(&name).cidr("10.244.6.0/23").internal("192.0.2.201"),
        3 => node(&name)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal("192.0.2.7"),
        4 => honest.address("ExternalIP", "10.244.7.9"),
        5 => honest.address("ExternalIP", "203.0.113.1"),
        6 => honest.address("ExternalIP", "192.0.2.7"),
        // No claims, invalid text, another network, another range.
        7 => node(&name),
        8 => node(&name).cidr("10.244.300.0/24").internal("192.0.2.7"),
        9 => node(&name).cidr("172.20.0.0/24").internal("198.51.100.7"),
        10 => node(&name)
            .cidr(&format!("10.244.{number}.0/25"))
            .internal("192.0.2.202"),
        // The address of the own Node, a broadcast address, one that two have, the
        // Internet's.
        12 => honest.internal("2001:db8::1"),
        13 => node(&name)
            .created(0)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal("192.0.2.1"),
        14 => node(&name)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal("192.0.2.255"),
        15 => node(&name)
            .created(1)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal("192.0.2.77"),
        16 => node(&name).cidr("8.8.8.0/24").internal("192.0.2.204"),
        17 => node(&name)
            .cidr(&format!("192.0.{number}.0/24"))
            .internal("192.0.2.205"),
        // Another family first.
        18 => node(&name)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal(&format!("2001:db8::{number}"))
            .internal(&format!("192.0.2.{number}")),
        11 => node(&name).cidr("10.244.0.0/16").internal("192.0.2.203"),
        // A second family, its own range of it or that of a dual-stack own Node.
        19 => honest.cidr(&format!("fd00:0:0:{number}::/64")),
        20 => node(&name)
            .created(0)
            .internal("192.0.2.206")
            .cidr("fd00::/56"),
        21 => honest.cidr("fd00:0:0:7::/64"),
        _ => honest,
    }
}

/// The state after `delta`, without the code under test.
fn map_after<K: Ord + Clone, V: Clone>(
    mut map: BTreeMap<K, V>,
    delta: &keyed::Delta<K, V>,
) -> BTreeMap<K, V> {
    map.retain(|key, _| !delta.removed.contains_key(key));
    map.extend(delta.added.clone());
    map
}

fn set_after<K: Ord + Clone>(mut set: BTreeSet<K>, delta: &keyed::Delta<K, ()>) -> BTreeSet<K> {
    set.retain(|key| !delta.removed.contains_key(key));
    set.extend(delta.added.keys().cloned());
    set
}

fn after(desired: Desired, delta: &Delta) -> Desired {
    let (sets, changed) = (desired.ruleset, &delta.ruleset);
    Desired {
        routes: map_after(desired.routes, &delta.routes),
        neighbours: map_after(desired.neighbours, &delta.neighbours),
        fdb: map_after(desired.fdb, &delta.fdb),
        ruleset: Ruleset {
            cluster_cidrs: set_after(sets.cluster_cidrs, &changed.cluster_cidrs),
            node_addresses: set_after(sets.node_addresses, &changed.node_addresses),
            underlay_addresses: set_after(sets.underlay_addresses, &changed.underlay_addresses),
            vxlan_sources: set_after(sets.vxlan_sources, &changed.vxlan_sources),
            ..sets
        },
        ..desired
    }
}

fn apply(cluster: &mut Cluster, event: Event<Node>) {
    let _ = cluster.apply(event);
}

fn started(config: Config, numbers: std::ops::Range<u8>) -> (Cluster, OverlayPlanner) {
    started_as(me(), config, numbers)
}

fn started_as(
    own: Node,
    config: Config,
    numbers: std::ops::Range<u8>,
) -> (Cluster, OverlayPlanner) {
    let mut cluster = Cluster::new("me");
    apply(&mut cluster, Event::Init);
    apply(&mut cluster, Event::InitApply(own));
    for number in numbers {
        apply(&mut cluster, Event::InitApply(other(number, 0)));
    }
    apply(&mut cluster, Event::InitDone);
    let mut planner = OverlayPlanner::new(config, None);
    planner.update(&mut cluster, host());
    (cluster, planner)
}

/// Updates `planner` on a machine that has a way to everybody for whom it asks.
fn update(planner: &mut OverlayPlanner, cluster: &mut Cluster) {
    let link = "eth0".to_owned();
    let way = Path { mtu: 1500, link };
    let targets = planner.path_targets().to.into_iter();
    let paths = targets.map(|to| (to, way.clone())).collect();
    planner.update(cluster, HostFacts { paths, ..host() });
}

#[test]
fn a_node_that_touches_nobody_is_followed() {
    let (mut cluster, mut planner) = started(config(""), 2..100);
    for event in [
        Event::Apply(other(100, 0)),
        Event::Apply(other(100, 10)),
        Event::Delete("n100".into()),
        Event::Delete("n7".into()),
    ] {
        let version = planner.version();
        apply(&mut cluster, event.clone());
        update(&mut planner, &mut cluster);
        let delta = planner.delta_since(version);
        assert!(delta.is_some_and(|delta| !delta.is_empty()), "{event:?}");
    }
}

/// Two Nodes with one address cost the others nothing; what they add changes with
/// each other, so a change of one of them is planned with all.
#[test]
fn nodes_that_share_an_address_keep_no_other_from_being_followed() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    for (node, followed) in [
        (other(3, 15), true),
        (other(4, 15), false),
        (other(20, 0), true),
        (other(3, 0), false),
        (other(4, 0), true),
    ] {
        let version = planner.version();
        apply(&mut cluster, Event::Apply(node.clone()));
        update(&mut planner, &mut cluster);
        let delta = planner.delta_since(version);
        assert_eq!(delta.is_some(), followed, "{node:?}");
        let whole = plan(&config(""), &cluster.snapshot().unwrap(), &host());
        assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
        let problems: Vec<Problem> = planner.problems().cloned().collect();
        assert_eq!(problems, whole.problems);
    }
}

/// Ranges that overlap each other are of no concern to anybody else; whoever claims
/// what is in one of them is planned with all.
#[test]
fn refused_claims_of_others_keep_no_other_node_from_being_followed() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    for (event, followed) in [
        // A range of n7, one around it, and one in that of n8: all refused.
        (
            Event::Apply(node("n30").created(99).cidr("10.244.7.0/24")),
            false,
        ),
        (
            Event::Apply(node("n31").created(99).cidr("10.244.6.0/23")),
            false,
        ),
        (
            Event::Apply(node("n32").created(99).cidr("10.244.8.128/25")),
            false,
        ),
        (Event::Apply(other(20, 0)), true),
        (Event::Apply(other(20, 10)), true),
        (Event::Delete("n20".into()), true),
        (Event::Delete("n3".into()), true),
        // n30 gets the range of n7, and n32 then its own, in that of n8.
        (Event::Delete("n7".into()), false),
        (Event::Delete("n8".into()), false),
        (Event::Apply(other(21, 0)), true),
    ] {
        let version = planner.version();
        apply(&mut cluster, event.clone());
        update(&mut planner, &mut cluster);
        let delta = planner.delta_since(version);
        let is_followed = delta.is_some_and(|delta| !delta.is_empty());
        assert_eq!(is_followed, followed, "{event:?}");
        let whole = plan(&config(""), &cluster.snapshot().unwrap(), &host());
        assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
        let problems: Vec<Problem> = planner.problems().cloned().collect();
        assert_eq!(problems, whole.problems);
    }
}

/// The younger gets its MAC as soon as the older is gone, though nothing else of them is
/// the same.
#[test]
fn nodes_whose_devices_have_the_same_mac_are_planned_with_all() {
    let (mut cluster, mut planner) = started(config(""), 2..5);
    let (older, younger) = ("node-13230037", "node-13413090");
    assert_eq!(
        crate::overlay::vtep::mac(older),
        crate::overlay::vtep::mac(younger)
    );
    let first = node(older).cidr("10.244.30.0/24").internal("192.0.2.30");
    let second = node(younger).cidr("10.244.31.0/24").internal("192.0.2.31");
    for (event, followed) in [
        (Event::Apply(first), true),
        (Event::Apply(second.clone().created(99)), false),
        (Event::Apply(other(20, 0)), true),
        (Event::Delete(older.into()), false),
        (Event::Delete(younger.into()), true),
    ] {
        let version = planner.version();
        apply(&mut cluster, event.clone());
        update(&mut planner, &mut cluster);
        assert_eq!(
            planner.delta_since(version).is_some(),
            followed,
            "{event:?}"
        );
        let whole = plan(&config(""), &cluster.snapshot().unwrap(), &host());
        assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
        let problems: Vec<Problem> = planner.problems().cloned().collect();
        assert_eq!(problems, whole.problems);
    }
}

/// What was followed of the first is part of the whole plan already, and has to be written.
#[test]
fn of_two_nodes_that_change_at_once_one_is_followed_though_the_other_cannot_be() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    let version = planner.version();
    // All that the second has is the range of n7, so that nothing of it is planned.
    let second = node("n21").created(99).cidr("10.244.7.0/24");
    apply(&mut cluster, Event::Apply(other(20, 0)));
    apply(&mut cluster, Event::Apply(second));
    update(&mut planner, &mut cluster);
    let whole = plan(&config(""), &cluster.snapshot().unwrap(), &host());
    assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
    assert_ne!(planner.version(), version);
    assert_eq!(planner.delta_since(version), None);
}

#[test]
fn a_node_that_another_age_has_costs_nothing() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    let version = planner.version();
    apply(&mut cluster, Event::Apply(other(3, 0).created(77)));
    update(&mut planner, &mut cluster);
    assert_eq!(planner.version(), version);
}

#[test]
fn nothing_is_planned_before_the_nodes_are_complete_and_the_last_plan_is_held() {
    let mut cluster = Cluster::new("me");
    let mut planner = OverlayPlanner::new(config(""), None);
    apply(&mut cluster, Event::Init);
    apply(&mut cluster, Event::InitApply(me()));
    update(&mut planner, &mut cluster);
    assert!(!planner.is_current() && planner.network().is_none());
    let kinds = |planner: &OverlayPlanner| -> Vec<&str> {
        planner
            .problems()
            .map(|problem| problem.kind.word())
            .collect()
    };
    assert_eq!(kinds(&planner), ["nodes-not-listed"]);

    apply(&mut cluster, Event::InitDone);
    update(&mut planner, &mut cluster);
    assert!(planner.is_current());
    let (version, network) = (planner.version(), planner.network().cloned());

    apply(&mut cluster, Event::Apply(node("me").internal("192.0.2.1")));
    update(&mut planner, &mut cluster);
    assert!(!planner.is_current());
    assert_eq!(kinds(&planner), ["no-pod-cidr"]);
    assert_eq!(
        (planner.version(), planner.network().cloned()),
        (version, network)
    );
}

#[test]
fn what_changes_while_the_own_node_is_missing_is_planned_when_it_is_back() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    let version = planner.version();
    for event in [
        Event::Delete("me".into()),
        Event::Delete("n3".into()),
        Event::Apply(other(11, 0)),
    ] {
        apply(&mut cluster, event);
        update(&mut planner, &mut cluster);
        planner.prepare(&cluster);
    }
    assert_eq!((planner.version(), planner.nodes()), (version, 9));
    apply(&mut cluster, Event::Apply(me()));
    update(&mut planner, &mut cluster);
    assert_ne!(planner.version(), version);
    let whole = plan(&config(""), &cluster.snapshot().unwrap(), &host());
    assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
}

proptest! {
    #[test]
    fn what_was_followed_is_what_would_have_been_planned(
        line in prop::sample::select(vec![
            "",
            "--cluster-cidr 10.244.0.0/16",
            "--backend cross-subnet",
            "--backend direct",
            "--masquerade-nodes off",
        ]),
        batches in prop::collection::vec(
            prop::collection::vec((2..12_u8, 0..27_u8), 1..4),
            1..12,
        ),
        is_young: bool,
    ) {
        let config = config(line);
        let own = if is_young { me().created(50).cidr("fd00::/64")
 } else { me()
 };
        let (mut cluster, mut planner) = started_as(own, config.clone(), 5..9);
        for batch in batches {
            let (version, network) = (planner.version(), planner.network().cloned());
            for (node, odd) in batch {
                apply(&mut cluster, match odd {
                    22.. => Event::Delete(format!("n{node}").into()),
                    odd => Event::Apply(other(node, odd)),
                });
            }
            update(&mut planner, &mut cluster);
            let whole = plan(&config, &cluster.snapshot().unwrap(), &host());
            prop_assert_eq!(planner.is_current(), whole.network.is_some());
            if let Some(network) = &whole.network {
                prop_assert_eq!(planner.network().map(Arc::as_ref), Some(network));
            }
            let problems: Vec<Problem> = planner.problems().cloned().collect();
            prop_assert_eq!(problems, whole.problems);
            if let (Some(delta), Some(network)) = (planner.delta_since(version), network) {
                let desired = after(network.desired.clone(), delta);
                prop_assert_eq!(&desired, &planner.network().unwrap().desired);
            }
        }
    }
}
