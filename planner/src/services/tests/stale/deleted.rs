//! Flows of Services that were deleted, in cases of their own.

use super::*;

/// Also where nothing says which networks Services have.
#[test]
fn flows_of_the_last_service_that_is_deleted_are_looked_for() {
    let mut planner = planner(&balanced());
    planner.plan();
    let mut past = PastFrontends::default();
    let concerned = |planner: &ServicePlanner, past: &PastFrontends| {
        let judge = judge(planner, past);
        [Family::V4, Family::V6].map(|family| judge.concerns(PROTOCOL, family))
    };
    assert_eq!(concerned(&planner, &past), [true, false]);
    planner.apply_services(Event::Delete(service(&[]).key()));
    plan(&mut planner, &mut past);
    assert_eq!(concerned(&planner, &past), [true, false]);
    assert_eq!(
        concerned(&planner, &PastFrontends::default()),
        [false, false]
    );
}

/// Its frontends lead to the group of this node's endpoints, and the other one is empty.
#[test]
fn flows_of_a_service_of_local_endpoints_are_stale_by_the_kernels_elements_too() {
    let mut local = dns(service(&["10.96.0.1"]));
    (local.internal_local, local.ports[0].node_port) = (true, 0);
    let mut before = planner(&cluster(vec![local], vec![dns_slice(both(), 5353)]));
    before.plan();
    let known = written(before.desired()).frontends_of(PROTOCOL);
    let mut after = planner(&cluster(vec![], vec![]));
    after.plan();
    let past = PastFrontends::of_last_run(&known, after.desired());
    let gone = judge(&after, &past);
    assert!(is_stale(&gone, FRONTENDS[0], "10.0.0.2:5353"));
    // It had none of another node.
    assert!(!is_stale(&gone, FRONTENDS[0], "10.0.1.2:5353"));
}

#[test]
fn the_kernels_endpoints_are_found_in_parts_and_by_their_numbers() {
    let many = |last: u8| endpoint(&format!("10.0.3.{last}"), "other");
    let many: Vec<_> = (1..=200).map(many).collect();
    for (affinity, endpoints) in [(None, many.clone()), (Some(60), both()), (Some(60), many)] {
        let mut one = dns(service(&["10.96.0.1"]));
        one.affinity_seconds = affinity;
        let slice = dns_slice(endpoints, 5353);
        let mut before = planner(&cluster(vec![one], vec![slice]));
        before.plan();
        let known = written(before.desired()).frontends_of(PROTOCOL);
        let tracked = &before.desired().tracked;
        assert_eq!(known.len(), tracked.len());
        for (frontend, found) in known {
            assert_eq!(BTreeSet::from_iter(found), *tracked[&frontend]);
        }
    }
}
