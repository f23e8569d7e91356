#[path = "../../../planner/src/services/tests/earlier.rs"]
mod earlier;

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use tweed_component::schema::Sets as _;
use tweed_core::family::Family;
use tweed_planner::services::desired::{
    Desired, Endpoint, FIRST_AFFINITY, FIRST_GROUP, FIRST_LIMIT, FIRST_PART, Frontend, Frontends,
    GROUP_DISTANCE, Group, Holds, MAX_SLOTS, Masquerade, NodePort, Number, Part, PerScope, Span,
    Target,
};

use super::table::steps;
use super::{known_numbers, skeleton};
use crate::element::{Change, Contents, Data, Elements, ElementsDelta, Field, Key, apply};
use crate::provider::Provider;
use crate::schema::{self, contents};

#[test]
fn the_table_with_services() {
    let skeleton = skeleton(&[10_800].into(), false);
    // The chains of all numbers of slots are alike.
    let mut text = skeleton.script(&Contents::new(), None);
    let third = text.find("\n\tchain service_draw_3 ").unwrap();
    let after = text
        .find("\n\tchain service_affinity_cluster_10800 ")
        .unwrap();
    text.replace_range(third..after, "");
    insta::assert_snapshot!(text);
}

#[test]
fn a_timeout_of_affinity_is_read_back_from_its_chain() {
    let desired = Desired {
        affinities: [
            (FIRST_AFFINITY, 10_800),
            (FIRST_AFFINITY + GROUP_DISTANCE, 7),
        ]
        .into(),
        ..Desired::default()
    };
    let elements: Elements = Provider::elements(&desired, "service_timeouts").collect();
    let timeouts = elements.values().flatten().map(|data| match &**data {
        crate::element::Data::Verdict(verdict) => super::rules::timeout(verdict),
        _ => None,
    });
    let timeouts: Vec<_> = timeouts.collect();
    // The default needs no element.
    assert_eq!(timeouts, [Some(7)]);
}

/// A set, and how many elements are removed from it and added.
type Written = (String, usize, usize);

/// What is written in turn when the frontends 192.0.2.1 to 9 have other limits, each with
/// these sources: networks 10.0.N.0/24, and the node itself, which is 0 here.
fn written(old: &[(Number, &[u8])], new: &[(Number, &[u8])]) -> Vec<Vec<Written>> {
    let with = |limits: &[(Number, &[u8])]| {
        let mut desired = Desired::default();
        for (number, (limit, sources)) in (1..).zip(limits) {
            let at = Frontend {
                address: [192, 0, 2, number].into(),
                protocol: 6,
                port: 80,
            };
            desired.limits.insert(at, *limit);
            for source in *sources {
                let (first, last) = ([10, 0, *source, 0].into(), [10, 0, *source, 255].into());
                match source {
                    0 => desired.open_to_node.insert(*limit),
                    _ => desired.allowed.insert((*limit, Span { first, last })),
                };
            }
        }
        desired
    };
    let delta = with(old).change_to(&with(new));
    let size = |change: Change| {
        let ElementsDelta { removed, added } = change.delta;
        (change.set, removed.len(), added.len())
    };
    let steps = steps(schema::changes::<Desired>(&delta)).into_iter();
    let sizes = steps.map(|changes| changes.into_iter().map(size).collect());
    sizes.collect()
}

/// Whether a source, or the node itself if there is none, may use a frontend.
fn passes(contents: &Contents, frontend: &Key, source: Option<IpAddr>) -> bool {
    let Some(data) = contents["service_limits4"].get(frontend) else {
        return true;
    };
    let Some(Data::Value(limit)) = data.as_deref() else {
        panic!("no limit")
    };
    let key: Key = match source {
        Some(source) => [Field::from(*limit), source.into()].into_iter().collect(),
        None => Field::from(*limit).into(),
    };
    let set = source.map_or("service_open_to_node", |_| "service_allowed4");
    contents[set].contains_key(&key)
}

/// Plans of so few frontends, limits and sources that a number often means something else
/// in the next one.
fn limited() -> impl Strategy<Value = Desired> {
    let at = |last: u8| Frontend {
        address: [192, 0, 2, last].into(),
        protocol: 6,
        port: 80,
    };
    let limit = || FIRST_LIMIT..FIRST_LIMIT + 3;
    let source = |last: u8| {
        let source: IpAddr = [10, 0, 0, last].into();
        let (first, last) = (source, source);
        Span { first, last }
    };
    (
        prop::collection::btree_map((1..4_u8).prop_map(at), limit(), 0..4),
        prop::collection::btree_set((limit(), (1..4_u8).prop_map(source)), 0..8),
        prop::collection::btree_set(limit(), 0..4),
    )
        .prop_map(|(limits, allowed, open_to_node)| Desired {
            limits,
            allowed,
            open_to_node,
            ..Desired::default()
        })
}

#[test]
fn who_passes_a_limit_is_written_before_it_is_used_and_removed_after() {
    let allowed = |removed, added| ("service_allowed4".to_owned(), removed, added);
    let to_node = |removed, added| ("service_open_to_node".to_owned(), removed, added);
    let limits = |count| ("service_limits4".to_owned(), count, count);
    let [first, second, third] = [0, 1, 2].map(|number| FIRST_LIMIT + number);
    let steps = written(&[(first, &[9, 0])], &[(second, &[9, 0])]);
    let expected = [
        vec![to_node(0, 1), allowed(0, 1)],
        vec![limits(1)],
        vec![to_node(1, 0), allowed(1, 0)],
    ];
    assert_eq!(steps, expected);
    // Two numbers mean something else afterwards, whose old and new ranges might overlap.
    let steps = written(
        &[(first, &[9]), (second, &[8]), (third, &[7])],
        &[(second, &[9]), (first, &[8]), (third + 1, &[7])],
    );
    let expected = [
        vec![allowed(0, 1)],
        vec![allowed(2, 2), limits(3)],
        vec![allowed(1, 0)],
    ];
    assert_eq!(steps, expected);
    // Of two that change places one passes all that the other does, and more.
    let steps = written(
        &[(first, &[9, 8, 0]), (second, &[9])],
        &[(second, &[9, 8, 0]), (first, &[9])],
    );
    assert_eq!(steps, [vec![to_node(1, 1), allowed(1, 1), limits(2)]]);
}

fn address() -> impl Strategy<Value = IpAddr> {
    let any = prop_oneof![Just("10.0.0."), Just("fd00::")];
    (any, 0..5_u8).prop_map(|(base, last)| format!("{base}{last}").parse().unwrap())
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (address(), 0..5_u16).prop_map(|(address, port)| Endpoint { address, port })
}

fn frontend() -> impl Strategy<Value = Frontend> {
    (address(), 6..8_u8, 0..5_u16).prop_map(|(address, protocol, port)| Frontend {
        address,
        protocol,
        port,
    })
}

fn node_port() -> impl Strategy<Value = NodePort> {
    (any::<bool>(), 6..8_u8, 0..5_u16).prop_map(|(is_v4, protocol, port)| NodePort {
        family: if is_v4 { Family::V4 } else { Family::V6 },
        protocol,
        port,
    })
}

fn frontends<K: Ord + std::fmt::Debug + 'static>(
    key: BoxedStrategy<K>,
) -> impl Strategy<Value = Frontends<K>> {
    let target = || {
        prop_oneof![
            (0..4_u32, shape())
                .prop_map(|(group, of)| Target::Group(FIRST_GROUP + group * GROUP_DISTANCE, of)),
            (0..4_u32).prop_map(|group| Target::Affinity(FIRST_AFFINITY + group * GROUP_DISTANCE)),
            Just(Target::Reject),
            Just(Target::Drop),
        ]
    };
    let masquerade = prop_oneof![Just(Masquerade::All), Just(Masquerade::OwnNode)];
    (
        prop::collection::btree_map(key.clone(), target(), 0..6),
        prop::collection::btree_map(key.clone(), target(), 0..6),
        prop::collection::btree_map(key, masquerade, 0..6),
    )
        .prop_map(|(targets, outside, masquerade)| Frontends {
            targets,
            outside,
            masquerade,
        })
}

fn shape() -> impl Strategy<Value = Group> {
    let holds = prop_oneof![
        Just(Holds::Endpoints),
        Just(Holds::Members),
        Just(Holds::Parts)
    ];
    (1..=MAX_SLOTS, holds).prop_map(|(slots, holds)| Group { slots, holds })
}

fn desired() -> impl Strategy<Value = Desired> {
    let group = || {
        let first = prop_oneof![Just(FIRST_GROUP), Just(FIRST_PART), Just(FIRST_AFFINITY)];
        (first, 0..4_u32).prop_map(|(first, number)| first + number * GROUP_DISTANCE)
    };
    let part = move || (group(), 1..=MAX_SLOTS).prop_map(|(group, slots)| Part { group, slots });
    let slot = move || (group(), 0..MAX_SLOTS);
    let affine = || (0..4_u32).prop_map(|number| FIRST_AFFINITY + number);
    let limit = || FIRST_LIMIT..FIRST_LIMIT + 4;
    let addresses = || prop::collection::btree_set(address(), 0..6);
    let spans = || {
        let span = address().prop_map(|address| Span {
            first: address,
            last: address,
        });
        prop::collection::btree_set(span, 0..6)
    };
    (
        (
            frontends(frontend().boxed()),
            frontends(node_port().boxed()),
            prop::collection::btree_map(group(), shape(), 0..6),
            prop::collection::btree_map(affine(), 1..4_u32, 0..4),
        ),
        (
            prop::collection::btree_map(slot(), endpoint(), 0..6),
            prop::collection::btree_map(slot(), affine(), 0..6),
            prop::collection::btree_map(slot(), part(), 0..6),
            prop::collection::btree_map(affine(), endpoint(), 0..4),
            prop::collection::btree_set(affine(), 0..4),
            prop::collection::btree_set(affine(), 0..4),
        ),
        (
            prop::collection::btree_map(frontend(), limit(), 0..4),
            prop::collection::btree_set((limit(), address()), 0..4),
            prop::collection::btree_set(limit(), 0..4),
        ),
        (
            addresses(),
            addresses(),
            addresses(),
            addresses(),
            prop::collection::btree_set(endpoint(), 0..6),
        ),
        (spans(), spans(), spans()),
    )
        .prop_map(|(fronts, slots, limits, lists, networks)| Desired {
            addresses: fronts.0,
            node_ports: fronts.1,
            groups: fronts.2,
            affinities: fronts.3,
            slots: slots.0,
            member_slots: slots.1,
            parts: slots.2,
            endpoints: slots.3,
            members: PerScope {
                cluster: slots.4,
                local: slots.5,
            },
            limits: limits.0,
            allowed: (limits.1.into_iter())
                .map(|(limit, ip)| {
                    (
                        limit,
                        Span {
                            first: ip,
                            last: ip,
                        },
                    )
                })
                .collect(),
            open_to_node: limits.2,
            node_port_exceptions: lists.0,
            cluster_ips: lists.1,
            foreign: lists.2,
            hairpin: lists.3,
            tcp_endpoints: lists.4,
            node_port_networks: networks.0,
            service_networks: networks.1,
            pod_networks: networks.2,
            ..Desired::default()
        })
}

proptest! {
    #[test]
    fn a_delta_makes_the_new_elements_of_the_old_ones(old in desired(), new in desired()) {
        let mut after = contents(&old);
        for step in steps(schema::changes::<Desired>(&old.change_to(&new))) {
            apply(&mut after, &step);
        }
        prop_assert_eq!(after, contents(&new));
    }

    /// Whatever the numbers meant before, as of another planner.
    #[test]
    fn between_the_steps_a_frontend_is_open_to_those_whom_its_old_or_new_limit_lets_pass(
        old in limited(),
        new in limited(),
    ) {
        let (before, after) = (contents(&old), contents(&new));
        let mut now = before.clone();
        let frontends: BTreeSet<_> = [&before, &after]
            .into_iter()
            .flat_map(|contents| contents["service_limits4"].keys().cloned())
            .collect();
        let sources = || (1..4_u8).map(|last| Some([10, 0, 0, last].into())).chain([None]);
        for step in steps(schema::changes::<Desired>(&old.change_to(&new))) {
            apply(&mut now, &step);
            for frontend in &frontends {
                for source in sources() {
                    let [before, now, after] =
                        [&before, &now, &after].map(|contents| passes(contents, frontend, source));
                    prop_assert!((before && after) <= now, "{frontend} refuses {source:?}");
                    prop_assert!(now <= (before || after), "{frontend} is open to {source:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_read_back_from_elements(desired in desired()) {
        let read = known_numbers::read(|set| {
            Ok(Some(Provider::elements(&desired, &set.name).collect()))
        });
        prop_assert_eq!(read.unwrap(), earlier::written(&desired));
    }
}
