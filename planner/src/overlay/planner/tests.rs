//! A plan that follows single Nodes is the plan of all of them.

use ipnetwork::IpNetwork;
use proptest::prelude::*;

use super::*;
use crate::fixture::{NodeFixture as _, config, node};
use crate::overlay::desired::Desired;
use crate::overlay::host::{AddressState, ConnectedRoute, HostAddress, Interface};
use tweed_core::object::Event;

/// A machine with 192.0.2.1/24.
fn host() -> HostFacts {
    let network: IpNetwork = "192.0.2.1/24".parse().unwrap();
    HostFacts {
        connected: [ConnectedRoute {
            destination: "192.0.2.0/24".parse().unwrap(),
            interface: 2,
        }]
        .into(),
        interfaces: [(
            2,
            Interface {
                name: "eth0".into(),
                mtu: 1500,
                up: true,
                addresses: vec![HostAddress {
                    network,
                    state: AddressState::Usable,
                }],
            },
        )]
        .into(),
    }
}

fn me() -> Node {
    node("me").cidr("10.244.0.0/24").internal("192.0.2.1")
}

/// A Node whose claims are mostly its own; `odd` makes it otherwise.
fn other(number: u8, odd: u8) -> Node {
    let name = format!("n{number}");
    let honest = node(&name)
        .created(i64::from(number))
        .cidr(&format!("10.244.{number}.0/24"))
        .internal(&format!("192.0.2.{number}"));
    match odd {
        // Another's address, range, or both around it.
        1 => node(&name).cidr("10.244.7.0/24").internal("192.0.2.200"),
        2 => node(&name).cidr("10.244.6.0/23").internal("192.0.2.201"),
        3 => node(&name)
            .cidr(&format!("10.244.{number}.0/24"))
            .internal("192.0.2.7"),
        4 => honest.address("ExternalIP", "10.244.7.9"),
        5 => honest.address("ExternalIP", "203.0.113.1"),
        6 => honest.address("ExternalIP", "192.0.2.7"),
        // Nothing, nonsense, elsewhere, moved.
        7 => node(&name),
        8 => node(&name).cidr("10.244.300.0/24").internal("192.0.2.7"),
        9 => node(&name).cidr("172.20.0.0/24").internal("198.51.100.7"),
        10 => node(&name)
            .cidr(&format!("10.244.{number}.0/25"))
            .internal("192.0.2.202"),
        11 => node(&name).cidr("10.244.0.0/16").internal("192.0.2.203"),
        _ => honest,
    }
}

struct Told {
    index: Index,
    generation: u64,
}

fn told(index: Index) -> Told {
    Told {
        index,
        generation: 0,
    }
}

fn tell(told: &mut Told, event: Event<Node>) {
    if told.index.apply(event) {
        told.generation += 1;
    }
}

/// `desired` after `delta`, by means of its own.
fn after(mut desired: Desired, delta: &Delta) -> Desired {
    let Delta { removed, added } = delta.clone();
    desired
        .routes
        .retain(|key, _| !removed.routes.contains_key(key));
    desired
        .neighbours
        .retain(|key, _| !removed.neighbours.contains_key(key));
    desired.fdb.retain(|key, _| !removed.fdb.contains_key(key));
    desired.routes.extend(added.routes);
    desired.neighbours.extend(added.neighbours);
    desired.fdb.extend(added.fdb);
    let sets = &mut desired.ruleset;
    sets.cluster_cidrs
        .retain(|cidr| !removed.ruleset.cluster_cidrs.contains(cidr));
    sets.node_addresses
        .retain(|ip| !removed.ruleset.node_addresses.contains(ip));
    sets.vxlan_sources
        .retain(|ip| !removed.ruleset.vxlan_sources.contains(ip));
    sets.cluster_cidrs.extend(added.ruleset.cluster_cidrs);
    sets.node_addresses.extend(added.ruleset.node_addresses);
    sets.vxlan_sources.extend(added.ruleset.vxlan_sources);
    desired
}

fn started(config: &Config, numbers: std::ops::Range<u8>) -> (Told, OverlayPlanner) {
    let mut told = told(Index::new("me"));
    tell(&mut told, Event::Init);
    tell(&mut told, Event::InitApply(me()));
    for number in numbers {
        tell(&mut told, Event::InitApply(other(number, 0)));
    }
    tell(&mut told, Event::InitDone);
    let mut planned = OverlayPlanner::default();
    planned.update(config, &mut told.index, told.generation, host());
    (told, planned)
}

#[test]
fn a_node_that_touches_nobody_is_followed() {
    let config = config("");
    let (mut told, mut planned) = started(&config, 2..100);
    for event in [
        Event::Apply(other(100, 0)),
        Event::Apply(other(100, 10)),
        Event::Delete("n100".into()),
        Event::Delete("n7".into()),
    ] {
        let number = planned.number;
        tell(&mut told, event.clone());
        planned.update(&config, &mut told.index, told.generation, host());
        let delta = planned.delta_since(number);
        assert!(delta.is_some_and(|delta| !delta.is_empty()), "{event:?}");
    }
}

#[test]
fn a_node_that_another_age_has_costs_nothing() {
    let config = config("");
    let (mut told, mut planned) = started(&config, 2..10);
    let number = planned.number;
    tell(&mut told, Event::Apply(other(3, 0).created(77)));
    planned.update(&config, &mut told.index, told.generation, host());
    assert_eq!(planned.number, number);
}

proptest! {
    #[test]
    fn what_was_followed_is_what_would_have_been_planned(
        line in prop::sample::select(vec![
            "",
            "--cluster-cidr 10.244.0.0/16",
            "--backend cross-subnet",
            "--backend direct",
        ]),
        batches in prop::collection::vec(
            prop::collection::vec((2..12_u8, 0..24_u8), 1..4),
            1..12,
        ),
    ) {
        let config = config(line);
        let (mut told, mut planned) = started(&config, 5..9);
        for batch in batches {
            let (number, network) = (planned.number, planned.network.clone());
            for (node, odd) in batch {
                let event = match odd {
                    20.. => Event::Delete(format!("n{node}").into()),
                    odd => Event::Apply(other(node, odd)),
                };
                tell(&mut told, event);
            }
            planned.update(&config, &mut told.index, told.generation, host());
            let whole = plan(&config, told.index.cluster().unwrap(), &host());
            prop_assert_eq!(planned.network.as_deref(), whole.network.as_ref());
            let problems: Vec<Problem> = planned.problems().cloned().collect();
            prop_assert_eq!(problems, whole.problems);
            if let (Some(delta), Some(network)) = (planned.delta_since(number), network) {
                let desired = after(network.desired.clone(), delta);
                prop_assert_eq!(&desired, &planned.network.as_ref().unwrap().desired);
            }
        }
    }
}
