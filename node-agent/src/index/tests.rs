use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::pod::Pod;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_planner::policy::PodScope;

use super::*;
use crate::config;
use policy::Collection;

/// Which collections cannot be read, and whether policies may be missing for it.
fn unreadable(index: &PolicyIndex) -> Vec<(String, bool)> {
    let sources = index.unreadable();
    let named = sources.map(|(is_missing, problem)| (problem.object, is_missing));
    named.collect()
}

/// A node whose policies are all known goes on serving pods while its API server is away.
#[test]
fn policies_may_be_missing_only_if_they_were_never_listed() {
    let lost = || Loss {
        reason: "the server is away".to_owned(),
        forbidden: false,
    };
    let collection = Collection::NetworkPolicies;
    let mut index = PolicyIndex::new("alpha");
    index.apply::<NetworkPolicy>(&collection, Event::Lost(lost()));
    assert_eq!(unreadable(&index), [(collection.to_string(), true)]);
    for event in [Event::Restored, Event::Init, Event::InitDone] {
        index.apply::<NetworkPolicy>(&collection, event);
    }
    assert_eq!(unreadable(&index), []);
    index.apply::<NetworkPolicy>(&collection, Event::Lost(lost()));
    assert_eq!(unreadable(&index), [(collection.to_string(), false)]);

    let pods = Collection::Pods(PodScope::Own);
    let mut index = PolicyIndex::new("alpha");
    index.take_changed();
    index.apply::<Pod>(&pods, Event::Lost(lost()));
    assert_eq!(unreadable(&index), [(pods.to_string(), false)]);
    assert!(index.take_changed(), "a reconcile has to report it");
    index.forget(&pods);
    assert_eq!(unreadable(&index), []);
    assert!(index.take_changed());
}

/// Kubernetes has them since 1.33, and nothing else says what is missing without them.
#[test]
fn without_service_cidrs_a_note_says_what_is_not_dropped() {
    let config = config::of_line("--node-name a --services on");
    let mut index = ServiceIndex::new(config.services.unwrap());
    let of = services::Collection::ServiceCidrs;
    let list = [Event::<ServiceCidr>::Init, Event::InitDone];
    for event in list.clone() {
        index.apply(&of, event);
    }
    let none: [String; 0] = [];
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
    index.take_changed();
    let absent = Event::<ServiceCidr>::Absent("the API server has none".to_owned());
    index.apply(&of, absent);
    assert!(index.has_changed(), "the board is to show it");
    let note = "the API server has none: there are no ServiceCIDRs, so packets to addresses \
                that no Service has are not dropped";
    assert_eq!(index.absent().collect::<Vec<_>>(), [note]);
    for event in list {
        index.apply(&of, event);
    }
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
}
