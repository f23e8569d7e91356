//! Explanations against the evaluator.

use proptest::prelude::*;
use tweed_core::agent_socket::service::{Client, Destination, Fate, Located, NoServiceFate, Where};
use tweed_core::object::service::ServicePort;

use super::fixture::{balancer, both, cluster, planner, slice};
use super::random::World;
use crate::dice::Dice;
use crate::services::desired::Frontend;
use crate::services::evaluator::{Flow, Verdict};
use crate::services::explain::lookup::{self, Origin, endpoints, masqueraded_to, way};
use crate::services::{OwnAddresses, ServicePlanner};

/// What the tables say of a flow, by the lookups of explanations.
fn verdict(planner: &ServicePlanner, flow: &Flow) -> Verdict {
    let (desired, surroundings) = (planner.desired(), &planner.surroundings);
    let key = Frontend {
        address: flow.destination,
        protocol: flow.protocol,
        port: flow.port,
    };
    let Some(at) = lookup::frontend(desired, key, flow.is_local) else {
        return match lookup::without(desired, flow.destination, flow.is_local) {
            NoServiceFate::Rejected => Verdict::Reject,
            NoServiceFate::Dropped => Verdict::Drop,
            NoServiceFate::Untouched => Verdict::Pass,
        };
    };
    let origin = match flow.is_own {
        true => Origin::Node,
        false if lookup::within(&desired.pod_networks, flow.source) => Origin::Pod,
        false => Origin::Outside,
    };
    let way = way(desired, at, origin, Some(flow.source)).unwrap();
    match way.fate {
        Fate::Rejected => Verdict::Reject,
        Fate::NoLocalEndpoint | Fate::SourceNotAllowed => Verdict::Drop,
        Fate::Sent => {
            let group = endpoints(desired, way.group.unwrap()).into_iter();
            let because = |ip| masqueraded_to(desired, surroundings, origin, flow.source, ip);
            let backends = group.map(|at| (at, way.masquerade || because(at.address).is_some()));
            Verdict::Send(backends.collect())
        }
    }
}

/// The reasons of endpoints and the plan come to the same number of used ones.
fn fits(located: &Located) {
    for port in &located.ports {
        let own = port.frontends.iter().filter(|one| one.taken_by.is_none());
        for path in own.flat_map(|frontend| &frontend.paths) {
            let counted = match path.local_only {
                true => port.counts.local,
                false => port.counts.cluster,
            };
            let expected = (path.fate == Fate::Sent).then_some(path.endpoints);
            assert!(
                expected.is_none() || expected == counted,
                "{path:?} {located:#?}"
            );
        }
    }
}

/// A path says what masquerades a flow.
fn names_masquerading(located: &Located, flow: &Flow, verdict: &Verdict) {
    let Verdict::Send(backends) = verdict else {
        return;
    };
    let path = &located.ports[0].frontends[0].paths[0];
    if (path.from == Client::Node) != flow.is_own {
        return; // A source of the node is taken for the node, whoever sends with it.
    }
    let is_any = backends.values().any(|masqueraded| *masqueraded);
    let is_all = backends.values().all(|masqueraded| *masqueraded);
    let is_some = path.hairpin || path.to_other_nodes;
    assert_eq!(path.masqueraded || is_some, is_any, "{path:?} {backends:?}");
    // All are also if the client is all of them, or a part of them.
    assert!(is_all || !path.masqueraded, "{path:?} {backends:?}");
    assert!(
        !is_all || path.masqueraded || path.hairpin,
        "{path:?} {backends:?}"
    );
}

/// An API server refuses this, a file of manifests may have it.
#[test]
fn of_two_ports_with_one_node_port_the_first_has_it() {
    let mut web = balancer(false);
    web.ports.push(ServicePort {
        name: "other".to_owned(),
        port: 81,
        ..web.ports[0].clone()
    });
    let mut planner = planner(&cluster(vec![web], vec![slice("s", both())]));
    planner.plan();
    let question = Where {
        to: Destination::Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            port: None,
            protocol: None,
        },
        from: Some(Client::Outside),
        all: false,
    };
    let explained = planner.explain(&question, OwnAddresses::default()).unwrap();
    let taken: Vec<Vec<bool>> = (explained.located.ports.iter())
        .map(|port| {
            port.frontends
                .iter()
                .map(|one| one.taken_by.is_some())
                .collect()
        })
        .collect();
    assert_eq!(taken, [[false, false, false], [false, false, true]]);
    fits(&explained.located);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_explanation_is_what_the_objects_say(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..100 {
            let flow = world.flow(&mut dice);
            let expected = world.cluster.evaluate(&flow);
            prop_assert_eq!(&verdict(&world.planner, &flow), &expected, "{:?}", flow);
            let to = Destination::Address {
                address: flow.destination,
                protocol: flow.protocol,
                port: flow.port,
            };
            let question = Where {
                to,
                from: Some(Client::Address(flow.source)),
                all: false,
            };
            let own = OwnAddresses {
                destination: flow.is_local,
                client: flow.is_own,
            };
            let explanation = world.planner.explain(&question, own).unwrap();
            fits(&explanation.located);
            names_masquerading(&explanation.located, &flow, &expected);
            prop_assert_eq!(
                lookup::part(&explanation.planned, &explanation.frontends),
                explanation.planned
            );
        }
    }
}
