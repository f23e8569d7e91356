//! Which pods of other nodes are to be watched.

use std::collections::BTreeSet;

use super::fixture::*;
use tweed_core::object::Event;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::Peer;

use crate::policy::model::pods::PodScope;

/// Every crossing of the limit would otherwise have all pods listed again.
#[test]
fn a_number_of_namespaces_around_the_limit_keeps_all_pods_watched() {
    let mut world = world(Vec::new());
    let mut wants = |namespaces: usize| {
        let peers = (0..namespaces).map(|number| Peer::Pods {
            namespace: Some(selector(&[(Namespace::NAME_LABEL, &format!("n{number}"))])),
            pod: None,
        });
        for number in 0..17 {
            let namespace = Namespace {
                name: format!("n{number}"),
                ..Namespace::default()
            };
            world.planner.apply_namespaces(Event::Apply(namespace));
        }
        let policy = allow("many", peers.collect(), Vec::new());
        world.planner.apply_network_policies(Event::Apply(policy));
        world.planner.plan();
        world.planner.model.peers.clone()
    };
    let count =
        |peers: BTreeSet<PodScope>| (!peers.contains(&PodScope::All)).then_some(peers.len());
    let mut counts = |all: &[usize]| -> Vec<Option<usize>> {
        all.iter().map(|one| count(wants(*one))).collect()
    };
    assert_eq!(counts(&[15, 16]), [Some(15), Some(16)]);
    assert_eq!(counts(&[17, 16, 17, 9]), [None; 4]);
    assert_eq!(counts(&[8, 16]), [Some(8), Some(16)]);
    assert_eq!(counts(&[17, 0, 16]), [None, Some(0), Some(16)]);
}
