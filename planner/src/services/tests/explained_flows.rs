//! Explanations against the evaluator.

use std::net::IpAddr;

use proptest::prelude::*;
use tweed_core::agent_socket::service::{Client, Destination, Fate, Located, NoServiceFate, Where};

use super::random::World;
use crate::dice::Dice;
use crate::services::OwnAddresses;
use crate::services::desired::{Desired, Frontend};
use crate::services::evaluator::{Flow, Verdict};
use crate::services::explain::lookup::{self, Origin, endpoints, way};

/// What the tables say of a flow, by the lookups of explanations.
fn verdict(desired: &Desired, flow: &Flow) -> Verdict {
    let key = Frontend {
        address: flow.destination,
        protocol: flow.protocol,
        port: flow.port,
    };
    let Some(at) = lookup::frontend(desired, key, flow.is_local) else {
        return match lookup::without(desired, flow.destination) {
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
            let is_hairpin =
                |ip: IpAddr| ip == flow.source && desired.hairpin.contains(&flow.source);
            Verdict::Send(
                group
                    .map(|at| (at, way.masquerade || is_hairpin(at.address)))
                    .collect(),
            )
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_explanation_is_what_the_objects_say(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut world = World::random(&mut dice);
        world.planner.plan();
        for _ in 0..100 {
            let flow = world.flow(&mut dice);
            let desired = world.planner.desired();
            prop_assert_eq!(verdict(desired, &flow), world.cluster.evaluate(&flow), "{:?}", flow);
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
            prop_assert_eq!(
                lookup::part(&explanation.planned, &explanation.frontends),
                explanation.planned
            );
        }
    }
}
