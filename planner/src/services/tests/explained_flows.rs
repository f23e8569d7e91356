//! Explanations against the evaluator.

use std::net::SocketAddr;

use proptest::prelude::*;
use tweed_component::explain::{Client, Destination, Step, Where};
use tweed_core::object::service::ServicePort;

use super::fixture::{all_of, asked, balancer, both, cluster, explain, planner, slice};
use super::random::World;
use crate::addresses::within;
use crate::services::desired::{Frontend, Scope};
use crate::services::explain::lookup::{self, Origin, Way, WithoutService, masqueraded_to, way};
use crate::services::table::part::{endpoints, group, part};
use crate::services::tests::evaluator::{Flow, Verdict};
use crate::services::{OwnAddresses, Places, ServicePlanner};
use crate::tests::dice::Dice;

/// What the tables say of a flow, by the lookups of explanations.
fn verdict(planner: &ServicePlanner, flow: &Flow) -> Verdict {
    let (model, desired) = (&planner.model, planner.desired());
    let key = Frontend {
        address: flow.destination,
        protocol: flow.protocol,
        port: flow.port,
    };
    let Some(at) = lookup::frontend(model, key, flow.is_local) else {
        return match lookup::without(model, flow.destination, flow.is_local) {
            WithoutService::Rejected => Verdict::Reject,
            WithoutService::Dropped => Verdict::Drop,
            WithoutService::Untouched => Verdict::Pass,
        };
    };
    let origin = if flow.is_own {
        Origin::Node
    } else if within(&model.surroundings.pod_networks, flow.source) {
        Origin::Pod
    } else {
        Origin::Outside
    };
    match way(model, at, origin, Some(flow.source)).unwrap() {
        Way::Rejected => Verdict::Reject,
        Way::NoLocalEndpoint | Way::SourceNotAllowed => Verdict::Drop,
        Way::Sent { scope, masquerade } => {
            let group = group(desired, at, origin == Origin::Outside).unwrap();
            assert_eq!(Scope::of(group), scope);
            let group = endpoints(desired, group).into_iter();
            let because = |ip| masqueraded_to(model, origin, flow.source, ip);
            let backends = group.map(|at| (at, masquerade || because(at.address).is_some()));
            Verdict::Send(backends.collect())
        }
    }
}

/// The number before a text.
fn number_before(text: &str, after: &str) -> Option<usize> {
    let (before, _) = text.split_once(after)?;
    before.rsplit(' ').next()?.parse().ok()
}

/// The reasons of endpoints and the plan come to the same number of used ones.
fn fits(steps: &[Step]) {
    let (mut is_taken, mut sent) = (false, Vec::new());
    for Step { depth, what, .. } in steps {
        if *depth == 0 {
            sent.clear();
        } else if what.starts_with("endpoints: ") {
            let all = number_before(what, " used");
            let local = number_before(what, " by Local").or(all);
            for (count, is_local) in sent.drain(..) {
                let counted = if is_local { local } else { all };
                assert_eq!(Some(count), counted, "{steps:#?}");
            }
        } else if *depth == 1 {
            is_taken = what.ends_with(" is taken");
        } else if let Some(count) = number_before(what, " endpoints")
            && !is_taken
        {
            sent.push((count, what.contains(" endpoints of this node (")));
        }
    }
}

/// An answer says what masquerades a flow.
fn names_masquerading(steps: &[Step], flow: &Flow, verdict: &Verdict) {
    let Verdict::Send(backends) = verdict else {
        return;
    };
    let way = steps.iter().find(|step| step.what.starts_with("from "));
    let way = &way.unwrap().what;
    if way.starts_with("from this node ") != flow.is_own {
        return; // A source of the node is taken for the node, whoever sends with it.
    }
    let is_any = backends.values().any(|masqueraded| *masqueraded);
    let is_all = backends.values().all(|masqueraded| *masqueraded);
    let says_all = way.ends_with(", masqueraded");
    assert_eq!(
        says_all || way.contains(", but for "),
        is_any,
        "{way} {backends:?}"
    );
    // All are also if the client is all of them, or a part of them.
    assert!(is_all || !says_all, "{way} {backends:?}");
    assert!(
        !is_all || says_all || way.contains(" itself"),
        "{way} {backends:?}"
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
        from: Some(Client::Outside),
        ..asked(all_of("web"))
    };
    let said = explain(&planner, &question).unwrap();
    let node_ports = said.lines().filter(|line| line.starts_with("  node port "));
    let taken = "  node port 30080 is taken (Service shop/web): it goes where that Service says";
    assert_eq!(node_ports.collect::<Vec<_>>(), ["  node port 30080", taken]);
    assert_eq!(said.matches(" is taken").count(), 1, "{said}");
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
            let at = SocketAddr::new(flow.destination, flow.port);
            let to = Destination::Address(at, flow.protocol);
            let question = Where {
                from: Some(Client::Address(flow.source)),
                ..asked(to)
            };
            let own = OwnAddresses {
                destination: flow.is_local,
                client: flow.is_own,
            };
            let explanation = world.planner.explain(&question, own, &Places::default()).unwrap();
            fits(&explanation.steps);
            names_masquerading(&explanation.steps, &flow, &expected);
            prop_assert_eq!(
                part(&explanation.planned, &explanation.frontends),
                explanation.planned
            );
        }
    }
}
