//! ServiceCIDRs that have ranges of pods: the API server takes them, and pods are reached all
//! the same.

use ipnetwork::IpNetwork;
use tweed_core::object::Event;
use tweed_core::object::service_cidr::ServiceCidr;

use super::fixture::{
    both, cluster, explain_untouched, flow, from, outside, own, planner, pods, send, service,
    slice, texts, verdict,
};
use super::walk::walk;
use crate::services::tests::evaluator::{Cluster, Verdict};
use crate::services::{Notice, Overlap, ServicePlanner, Step};

fn cidr(name: &str, cidrs: &[&str]) -> ServiceCidr {
    ServiceCidr {
        name: name.to_owned(),
        cidrs: texts(cidrs),
    }
}

/// Two nodes, and these ServiceCIDRs.
fn with(cidrs: &[ServiceCidr]) -> Cluster {
    let mut cluster = cluster(Vec::new(), Vec::new());
    cluster.cidrs = cidrs.to_vec();
    cluster
}

fn overlaps(planner: &ServicePlanner) -> Vec<Overlap> {
    let notices = planner.notices().into_iter();
    let overlaps = notices.map(|notice| match notice {
        Notice::Overlap(overlap) => overlap,
        other => panic!("{other:?}"),
    });
    overlaps.collect()
}

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Whoever begins them, flows to a pod pass, and those to an address of nobody are dropped.
fn reaches_pods(cluster: &Cluster, reached: &[&str], dropped: &[&str]) {
    for (addresses, expected) in [(reached, Verdict::Pass), (dropped, Verdict::Drop)] {
        for address in addresses {
            let to = if address.contains(':') {
                from("fd00:0:0:1::9", flow(address, 80))
            } else {
                flow(address, 80)
            };
            for flow in [to, own(to), outside(to)] {
                assert_eq!(verdict(cluster, &flow), expected, "{flow:?}");
            }
        }
    }
}

/// kubeadm's default is as wide.
#[test]
fn pods_are_reached_where_a_service_cidr_has_the_ranges_of_all() {
    let wide = with(&[cidr("kubernetes", &["10.0.0.0/12", "fd00::/48"])]);
    reaches_pods(
        &wide,
        &["10.0.0.7", "10.0.1.7", "fd00:0:0:1::7", "fd00:0:0:2::7"],
        &["10.0.2.7", "10.15.255.255", "fd00:0:0:3::7"],
    );
    let mut planner = planner(&wide);
    planner.plan();
    let [overlap] = &overlaps(&planner)[..] else {
        panic!("{:?}", planner.notices());
    };
    assert_eq!(overlap.name, "kubernetes");
    assert_eq!(overlap.cidrs, networks(&["10.0.0.0/12", "fd00::/48"]));
    let named = ["10.0.0.0/24", "10.0.1.0/24", "fd00:0:0:1::/64"];
    assert_eq!((&overlap.pods, overlap.more_pods), (&networks(&named), 1));
    assert_eq!((&overlap.nodes[..], overlap.more_nodes), (&[][..], 0));
}

/// The other way round: pods have a range around that of Services.
#[test]
fn pods_are_reached_where_their_range_is_the_larger() {
    let mut cluster = with(&[cidr("kubernetes", &["10.0.1.0/26"])]);
    cluster.pods = pods(&["10.0.0.0/24"], &["10.0.0.0/16"]);
    reaches_pods(&cluster, &["10.0.1.7"], &[]);
    assert_eq!(
        overlaps(&{
            let mut planner = planner(&cluster);
            planner.plan();
            planner
        })[0]
            .pods,
        networks(&["10.0.0.0/16"])
    );
}

#[test]
fn only_the_ranges_that_a_service_cidr_has_are_left_out_and_named() {
    for (one, range, inside, beside) in [
        ("10.0.1.0/25", "10.0.1.0/24", "10.0.1.7", "10.0.1.200"),
        (
            "fd00:0:0:2::/112",
            "fd00:0:0:2::/64",
            "fd00:0:0:2::7",
            "fd00:0:0:2:1::7",
        ),
    ] {
        let others = cidr("others", &["10.96.0.0/16", "fd00:96::/112"]);
        let cluster = with(&[others, cidr("of-pods", &[one])]);
        reaches_pods(&cluster, &[inside, beside], &["10.96.0.9", "fd00:96::9"]);
        let mut planner = planner(&cluster);
        planner.plan();
        let [overlap] = &overlaps(&planner)[..] else {
            panic!("{:?}", planner.notices());
        };
        assert_eq!(overlap.name, "of-pods");
        assert_eq!(overlap.pods, networks(&[range]));
    }
}

#[test]
fn ranges_and_service_cidrs_that_come_and_go_are_followed() {
    let mut planner = planner(&with(&[]));
    planner.plan();
    let (pod, other) = (flow("10.0.1.7", 80), flow("10.0.2.7", 80));
    planner.apply_service_cidrs(Event::Apply(cidr("wide", &["10.0.0.0/12"])));
    assert!(matches!(planner.plan(), Step::Delta(_)));
    assert_eq!(walk(&planner, &pod), Verdict::Pass);
    assert_eq!(walk(&planner, &other), Verdict::Drop);
    let own: &[&str] = &["10.0.0.0/24"];
    // A Node more, which costs what it brings and not what there is.
    planner.set_pod_networks(pods(own, &["10.0.1.0/24", "10.0.3.0/24"]));
    let Step::Delta(delta) = planner.plan() else {
        panic!("a range has come");
    };
    assert_eq!(delta.service_networks.len(), 3);
    planner.set_pod_networks(pods(own, &["10.0.1.0/24", "10.0.2.0/24"]));
    planner.plan();
    assert_eq!(walk(&planner, &other), Verdict::Pass);
    planner.set_pod_networks(pods(own, &["10.0.1.0/24", "10.0.2.0/24"]));
    assert_eq!(planner.plan(), Step::Unchanged, "a heartbeat");
    planner.set_pod_networks(pods(own, &["10.0.2.0/24"]));
    planner.plan();
    assert_eq!(walk(&planner, &pod), Verdict::Drop);
}

/// The Service has its port, and the pod with the same address all others.
#[test]
fn a_pod_whose_address_a_service_was_given_is_reached_at_other_ports() {
    let services = vec![service(&["10.0.1.7"])];
    let mut cluster = cluster(services, vec![slice("s", both())]);
    for cidrs in [vec![], vec![cidr("kubernetes", &["10.0.0.0/12"])]] {
        cluster.cidrs = cidrs;
        let backends = ["10.0.0.2:8080", "10.0.1.2:8080"];
        assert_eq!(
            verdict(&cluster, &flow("10.0.1.7", 80)),
            send(&backends, false)
        );
        assert_eq!(verdict(&cluster, &flow("10.0.1.7", 81)), Verdict::Pass);
    }
}

#[test]
fn service_where_says_that_a_pod_is_let_through() {
    let wide = with(&[cidr("kubernetes", &["10.0.0.0/12"])]);
    let reason = explain_untouched(&wide, "10.0.1.7", 80);
    assert!(reason.contains("in a range of pods"), "{reason}");
}
