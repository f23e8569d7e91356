//! What a held plan does to the marker, to ADDs and to the problems.

use tweed_core::attachment::{ContainerId, IfName, NetworkName};
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::{Event, ObjectKey};

use super::*;
use crate::policy::Collection;

fn judge() -> Judge {
    Judge {
        network: NetworkName::new(NETWORK_NAME).unwrap(),
        container_id: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        pod: None,
        addresses: vec!["10.244.1.5".parse().unwrap()],
        wait_ms: 1000,
    }
}

fn reconciler(marker: PolicyMarker) -> PolicyReconciler {
    PolicyReconciler {
        metrics: Metrics::register().1,
        marker,
        wants: watch::channel(Wants::default()).0,
        unknown: Effect::Warning,
        nodes: None,
        state: PolicyState::Unknown,
        held: Vec::new(),
        held_since: None,
        dropped: Dropped::default(),
    }
}

/// An index in which it is known that there are no policies.
fn index() -> PolicyIndex {
    let mut index = PolicyIndex::new("alpha");
    for event in [Event::<NetworkPolicy>::Init, Event::InitDone] {
        index.apply(&Collection::NetworkPolicies, event);
    }
    for event in [Event::Init, Event::InitDone] {
        index.planner.apply_cluster_network_policies(event);
    }
    index
}

fn policy() -> NetworkPolicy {
    NetworkPolicy {
        namespace: "shop".to_owned(),
        name: "deny".to_owned(),
        policy_types: vec!["Ingress".to_owned()],
        ..NetworkPolicy::default()
    }
}

#[test]
fn while_the_first_plan_is_held_adds_ask_and_are_pending() {
    let run_dir = tempfile::tempdir().unwrap();
    let path = run_dir.path().join("policy");
    let marker = PolicyMarker::new(run_dir.path());
    let (mut policies, mut index) = (reconciler(marker), index());
    let now = Instant::now();
    policies.plan(&mut index, now);
    policies.written(Some(&index));
    assert_eq!(policies.verdict(&index, &judge()), Verdict::NotInForce);

    index.apply(&Collection::NetworkPolicies, Event::Apply(policy()));
    assert!(policies.marker.set().unwrap());
    for _ in 0..2 {
        assert!(matches!(policies.plan(&mut index, now), Step::Hold(_)));
        policies.written(Some(&index));
        assert!(path.exists(), "an ADD would not ask");
        let verdict = policies.verdict(&index, &judge());
        let Verdict::Pending(reason) = verdict else {
            panic!("{verdict:?}");
        };
        assert!(reason.starts_with("not listed yet: "), "{reason}");
    }

    let key = ObjectKey {
        namespace: "shop".to_owned(),
        name: "deny".to_owned(),
    };
    let deleted = Event::<NetworkPolicy>::Delete(key);
    index.apply(&Collection::NetworkPolicies, deleted);
    policies.plan(&mut index, now);
    policies.written(Some(&index));
    assert!(!path.exists());
    assert_eq!(policies.verdict(&index, &judge()), Verdict::NotInForce);
}

#[test]
fn a_long_hold_is_told_though_a_plan_is_in_force() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for state in [PolicyState::Unknown, PolicyState::Behind] {
        assert!(is_told(state, Some(start), start));
        assert!(!is_told(state, None, at(60)));
    }
    let in_force = PolicyState::InForce;
    assert!(!is_told(in_force, Some(start), at(10)));
    assert!(is_told(in_force, Some(start), at(11)));
    assert!(!is_told(in_force, None, at(60)));
}
