//! Flows of Services that another proxy serves.

use tweed_core::object::Event;

use super::{FRONTENDS, balanced, dns, is_stale, judge, plan, service_cidr};
use crate::services::stale::{FlowEffect, PROTOCOL, PastFrontends};
use crate::services::tests::earlier::written;
use crate::services::tests::evaluator::Cluster;
use crate::services::tests::fixture::{balancer, cluster, planner, service};

#[test]
fn flows_of_a_service_that_another_proxy_serves_are_its_own() {
    let mut foreign = dns(service(&["10.96.0.1"]));
    foreign.not_ours = true;
    let mut cluster = cluster(vec![foreign], vec![]);
    cluster.cidrs = vec![service_cidr()];
    let mut planner = planner(&cluster);
    planner.plan();
    let judge = judge(&planner, &PastFrontends::default());
    assert!(!is_stale(&judge, "10.96.0.1:53", "10.0.0.7:53"));
    assert!(is_stale(&judge, "10.96.0.2:53", "10.0.0.7:53"));
}

#[test]
fn flows_of_a_service_that_moves_to_another_proxy_go_on_until_it_is_served_here_again() {
    let mut planner = planner(&Cluster {
        cidrs: vec![service_cidr()],
        ..balanced()
    });
    planner.plan();
    let mut past = PastFrontends::default();
    let mut moved = dns(balancer(false));
    moved.not_ours = true;
    planner.apply_services(Event::Apply(moved.clone()));
    plan(&mut planner, &mut past);
    let away = judge(&planner, &past);
    // Those of an endpoint that the other proxy alone knows of are its own too.
    for frontend in FRONTENDS {
        for endpoint in ["10.0.0.2:5353", "10.0.1.2:5353", "10.0.0.7:53"] {
            assert!(!is_stale(&away, frontend, endpoint), "{frontend}");
        }
    }
    moved.not_ours = false;
    planner.apply_services(Event::Apply(moved));
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
    let back = judge(&planner, &past);
    for frontend in FRONTENDS {
        assert!(!is_stale(&back, frontend, "10.0.0.2:5353"), "{frontend}");
        assert!(is_stale(&back, frontend, "10.0.0.7:53"), "{frontend}");
    }
}

#[test]
fn flows_of_a_service_that_moved_while_nobody_planned_are_not_stale_by_the_kernels_elements() {
    let mut before = planner(&balanced());
    before.plan();
    let known = written(before.desired()).frontends_of(PROTOCOL);
    let mut moved = balanced();
    moved.services[0].not_ours = true;
    let mut after = planner(&moved);
    after.plan();
    let past = PastFrontends::of_last_run(&known, after.desired());
    let judge = judge(&after, &past);
    for frontend in FRONTENDS {
        assert!(!is_stale(&judge, frontend, "10.0.0.2:5353"), "{frontend}");
    }
}
