//! Which endpoints flows go to, row by row: each is held against the plan and the
//! evaluator.

use std::net::SocketAddr;

use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice};
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object as _};

use super::fixture::{
    BOTH, at_node, balancer, both, cluster, ending, endpoint, flow, from, node, outside, own,
    planner, pods, send, service, slice, texts, verdict,
};
use super::walk::walk;
use crate::services::tests::evaluator::{Cluster, Flow, Verdict};
use crate::services::{Notice, Overlap, ServicePlanner, Step};

fn planned(cluster: &Cluster) -> ServicePlanner {
    let mut planner = planner(cluster);
    planner.plan();
    planner
}

#[test]
fn a_cluster_ip_masquerades_all_but_pods() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let to = flow("10.96.0.1", 80);
    assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
    assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH, true));
}

/// A slice that somebody has made by hand, for a Service without a selector, names no node.
#[test]
fn a_pod_that_reaches_itself_is_masqueraded_whatever_node_its_slice_names() {
    for name in ["", "other"] {
        let endpoints = vec![endpoint("10.0.0.2", name), endpoint("10.0.1.2", name)];
        let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", endpoints)]);
        let found = verdict(&cluster, &from("10.0.0.2", flow("10.96.0.1", 80)));
        let mut expected = send(&BOTH, false);
        if let Verdict::Send(endpoints) = &mut expected {
            endpoints.first_entry().unwrap().insert(true);
        }
        assert_eq!(found, expected, "{name}");
        // Of other nodes it is not known which addresses pods have, nor needed.
        let mut planner = planner(&cluster);
        planner.plan();
        let hairpin = |planner: &ServicePlanner| planner.desired().hairpin.clone();
        assert_eq!(hairpin(&planner), ["10.0.0.2".parse().unwrap()].into());
        // They are looked at again when this node gets another range.
        planner.set_pod_networks(pods(&["10.0.1.0/24"], &["10.0.0.0/24"]));
        planner.plan();
        assert_eq!(hairpin(&planner), ["10.0.1.2".parse().unwrap()].into());
    }
}

/// Whoever they are used by: a connection to one that is not used any more goes on.
#[test]
fn endpoints_of_tcp_are_known_while_any_service_that_is_served_here_has_them() {
    let both_families = vec![
        endpoint("10.0.0.2", "me"),
        endpoint("fd00:0:0:2::2", "other"),
    ];
    let mut of_udp = slice("u", vec![endpoint("10.0.0.3", "me")]);
    of_udp.ports[0].protocol = "UDP".to_owned();
    let second = Service {
        name: "second".to_owned(),
        ..service(&["10.96.0.2", "fd00:96::2"])
    };
    let mut of_second = slice("t", both_families.clone());
    of_second.service = "second".to_owned();
    let mut planner = planner(&cluster(
        vec![service(&["10.96.0.1", "fd00:96::1"]), second.clone()],
        vec![slice("s", both_families), of_udp, of_second],
    ));
    planner.plan();
    let known = |planner: &ServicePlanner| -> Vec<String> {
        let endpoints = planner.desired().tcp_endpoints.iter();
        endpoints
            .map(|at| SocketAddr::new(at.address, at.port).to_string())
            .collect()
    };
    let all = ["10.0.0.2:8080", "[fd00:0:0:2::2]:8080"];
    assert_eq!(known(&planner), all);
    let not_ready = Endpoint {
        ready: false,
        serving: false,
        ..endpoint("10.0.0.2", "me")
    };
    planner.apply_endpoint_slices(Event::Apply(slice("s", vec![not_ready])));
    planner.plan();
    assert_eq!(known(&planner), all);
    planner.apply_services(Event::Delete(second.key()));
    planner.plan();
    assert_eq!(known(&planner), all[..1]);
    let foreign = Service {
        not_ours: true,
        ..service(&["10.96.0.1"])
    };
    planner.apply_services(Event::Apply(foreign));
    planner.plan();
    assert!(known(&planner).is_empty());
}

#[test]
fn a_pod_that_reaches_itself_is_masqueraded() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let Verdict::Send(found) = verdict(&cluster, &from("10.0.0.2", flow("10.96.0.1", 80))) else {
        panic!("refused");
    };
    assert_eq!(found.into_values().collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_service_without_endpoints_rejects_and_so_do_its_other_ports() {
    let mut cluster = cluster(vec![balancer(true)], vec![]);
    for to in [
        flow("10.96.0.1", 80),
        flow("203.0.113.1", 80),
        at_node(30080),
    ] {
        assert_eq!(verdict(&cluster, &outside(to)), Verdict::Reject);
    }
    cluster.slices.push(slice("s", both()));
    assert_eq!(verdict(&cluster, &flow("10.96.0.1", 81)), Verdict::Reject);
    assert_eq!(verdict(&cluster, &flow("203.0.113.1", 81)), Verdict::Pass);
}

#[test]
fn an_address_that_no_service_has_is_dropped_and_one_of_another_proxy_passes() {
    let foreign = Service {
        not_ours: true,
        ..service(&["10.96.0.7"])
    };
    let mut cluster = cluster(vec![foreign], vec![]);
    assert_eq!(verdict(&cluster, &flow("10.96.0.9", 80)), Verdict::Pass);
    for (name, cidr) in [("a", "10.96.0.0/16"), ("b", "fd00:96::/112")] {
        cluster.cidrs.push(ServiceCidr {
            name: name.to_owned(),
            cidrs: texts(&[cidr]),
        });
    }
    assert_eq!(verdict(&cluster, &flow("10.96.0.9", 80)), Verdict::Drop);
    assert_eq!(verdict(&cluster, &flow("10.96.0.7", 80)), Verdict::Pass);
    assert_eq!(verdict(&cluster, &flow("10.97.0.9", 80)), Verdict::Pass);
}

/// The API server takes such a range. What nodes say to each other has to arrive.
#[test]
fn nodes_are_reached_where_a_service_cidr_has_their_addresses() {
    let mut cluster = cluster(vec![], vec![]);
    assert!(planned(&cluster).notices().is_empty());
    cluster.cidrs.push(ServiceCidr {
        name: "wide".to_owned(),
        cidrs: texts(&["192.0.2.0/24"]),
    });
    assert_eq!(
        verdict(&cluster, &own(flow("192.0.2.2", 22))),
        Verdict::Pass
    );
    assert_eq!(verdict(&cluster, &at_node(22)), Verdict::Pass);
    let also_here = Flow {
        is_local: true,
        ..flow("192.0.2.99", 22)
    };
    assert_eq!(verdict(&cluster, &also_here), Verdict::Pass);
    assert_eq!(verdict(&cluster, &flow("192.0.2.99", 22)), Verdict::Drop);
    let notices = planned(&cluster).notices();
    let expected = Overlap {
        name: "wide".to_owned(),
        cidrs: vec!["192.0.2.0/24".parse().unwrap()],
        pods: Vec::new(),
        more_pods: 0,
        nodes: ["192.0.2.1", "192.0.2.2"]
            .map(|ip| ip.parse().unwrap())
            .into(),
        more_nodes: 0,
    };
    assert_eq!(notices, [Notice::Overlap(expected)]);
    let mut planner = planned(&cluster);
    planner.set_nodes(&[]);
    planner.plan();
    assert_eq!(planner.desired().service_networks.len(), 1);
    assert!(planner.notices().is_empty());
    // The API server gives a Service an address of a Node, and one that IPVS has put on this
    // machine.
    for (ip, is_local, other_ports) in [
        ("192.0.2.2", false, Verdict::Pass),
        ("192.0.2.1", true, Verdict::Pass),
        ("192.0.2.50", true, Verdict::Reject),
    ] {
        cluster.services = vec![service(&[ip])];
        let to = |port| Flow {
            is_local,
            ..flow(ip, port)
        };
        assert_eq!(verdict(&cluster, &to(22)), other_ports, "{ip}");
        assert_eq!(verdict(&cluster, &to(80)), Verdict::Reject, "{ip}");
    }
}

#[test]
fn the_external_policy_local_keeps_clients_addresses_and_lets_the_node_and_pods_reach_all() {
    let cluster = cluster(vec![balancer(true)], vec![slice("s", both())]);
    for to in [flow("203.0.113.1", 80), at_node(30080)] {
        assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
        assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
        assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH[..1], false));
    }
}

/// Its Node may say what it likes.
#[test]
fn a_client_is_a_pod_only_by_the_ranges_that_the_overlay_has_accepted() {
    let mut cluster = cluster(vec![balancer(true)], vec![slice("s", both())]);
    cluster.nodes[0]
        .pod_cidrs
        .push("198.51.100.0/24".to_owned());
    cluster.nodes[1].pod_cidrs = texts(&["0.0.0.0/0", "::/0"]);
    let to = flow("203.0.113.1", 80);
    assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
    assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH[..1], false));
}

#[test]
fn the_external_policy_local_drops_without_an_endpoint_here() {
    let remote = vec![endpoint("10.0.1.2", "other")];
    let cluster = cluster(vec![balancer(true)], vec![slice("s", remote)]);
    for to in [flow("203.0.113.1", 80), at_node(30080)] {
        assert_eq!(verdict(&cluster, &outside(to)), Verdict::Drop);
        assert_eq!(verdict(&cluster, &to), send(&BOTH[1..], false));
        assert_eq!(verdict(&cluster, &own(to)), send(&BOTH[1..], true));
    }
}

#[test]
fn the_external_policy_cluster_masquerades_everybody() {
    let cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    for to in [flow("203.0.113.1", 80), at_node(30080)] {
        for flow in [to, own(to), outside(to)] {
            assert_eq!(verdict(&cluster, &flow), send(&BOTH, true));
        }
    }
}

#[test]
fn the_internal_policy_local_is_about_cluster_ips_only() {
    let mut service = balancer(false);
    service.internal_local = true;
    let mut cluster = cluster(vec![service], vec![slice("s", both())]);
    assert_eq!(
        verdict(&cluster, &flow("10.96.0.1", 80)),
        send(&BOTH[..1], false)
    );
    assert_eq!(
        verdict(&cluster, &flow("203.0.113.1", 80)),
        send(&BOTH, true)
    );
    cluster.slices[0].endpoints.remove(0);
    assert_eq!(verdict(&cluster, &flow("10.96.0.1", 80)), Verdict::Drop);
    cluster.slices.clear();
    assert_eq!(verdict(&cluster, &flow("10.96.0.1", 80)), Verdict::Reject);
}

#[test]
fn endpoints_about_to_end_are_used_when_no_others_are_left_for_each_policy_by_itself() {
    let endpoints = vec![ending("10.0.0.2", "me"), endpoint("10.0.1.2", "other")];
    let mut cluster = cluster(vec![balancer(true)], vec![slice("s", endpoints)]);
    let to = flow("203.0.113.1", 80);
    assert_eq!(verdict(&cluster, &to), send(&BOTH[1..], false));
    assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH[..1], false));
    cluster.slices[0].endpoints[1] = ending("10.0.1.2", "other");
    assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
    cluster.slices[0].endpoints[1].serving = false;
    assert_eq!(verdict(&cluster, &to), send(&BOTH[..1], false));
}

#[test]
fn an_endpoint_that_is_ready_and_about_to_end_is_ready() {
    let mut endpoints = both();
    endpoints[0].terminating = true;
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", endpoints)]);
    assert_eq!(
        verdict(&cluster, &flow("10.96.0.1", 80)),
        send(&BOTH, false)
    );
}

#[test]
fn an_address_in_two_slices_is_as_the_one_says_that_is_not_about_to_end() {
    for order in [["s1", "s2"], ["s2", "s1"]] {
        let slices = vec![
            slice(order[0], vec![ending("10.0.0.2", "me")]),
            slice(order[1], both()),
        ];
        let cluster = cluster(vec![service(&["10.96.0.1"])], slices);
        assert_eq!(
            verdict(&cluster, &flow("10.96.0.1", 80)),
            send(&BOTH, false)
        );
    }
}

fn hinted(address: &str, node: &str, zones: &[&str], nodes: &[&str]) -> Endpoint {
    Endpoint {
        zone_hints: texts(zones),
        node_hints: texts(nodes),
        ..endpoint(address, node)
    }
}

#[test]
fn hints_for_this_node_count_before_those_for_its_zone_and_only_if_all_have_them() {
    let here = |zones: &[&str], nodes: &[&str]| hinted("10.0.0.2", "me", zones, nodes);
    let there = |zones: &[&str], nodes: &[&str]| hinted("10.0.1.2", "other", zones, nodes);
    for (endpoints, expected) in [
        (
            [here(&["z1"], &["me"]), there(&["z1"], &["other"])],
            &BOTH[..1],
        ),
        (
            [here(&["z2"], &["other"]), there(&["z1"], &["me"])],
            &BOTH[1..],
        ),
        // Not every endpoint is hinted for a node: the zone decides.
        ([here(&["z2"], &["me"]), there(&["z1"], &[])], &BOTH[1..]),
        // None is for this node.
        (
            [here(&["z1"], &["other"]), there(&["z2"], &["other"])],
            &BOTH[..1],
        ),
        // Not every endpoint has a hint, or none is for this zone.
        ([here(&["z1"], &[]), there(&[], &[])], &BOTH[..]),
        ([here(&["z2"], &[]), there(&["z3"], &[])], &BOTH[..]),
    ] {
        let cluster = cluster(
            vec![service(&["10.96.0.1"])],
            vec![slice("s", endpoints.to_vec())],
        );
        let found = verdict(&cluster, &flow("10.96.0.1", 80));
        assert_eq!(found, send(expected, false), "{endpoints:?}");
    }
}

/// They say which endpoints of the cluster are near. Those of this node are anyway.
#[test]
fn hints_do_not_choose_among_the_endpoints_of_this_node() {
    for hints in [&["z2"][..], &["z1"]] {
        let endpoints = vec![
            hinted("10.0.0.2", "me", &["z2"], &["other"]),
            hinted("10.0.0.3", "me", hints, &["other"]),
            hinted("10.0.1.2", "other", &["z1"], &["me"]),
        ];
        let own = &["10.0.0.2:8080", "10.0.0.3:8080"];
        let mut service = balancer(true);
        service.internal_local = true;
        let cluster = cluster(vec![service], vec![slice("s", endpoints)]);
        let to = flow("203.0.113.1", 80);
        assert_eq!(verdict(&cluster, &outside(to)), send(own, false));
        assert_eq!(verdict(&cluster, &to), send(&BOTH[1..], false));
        assert_eq!(verdict(&cluster, &flow("10.96.0.1", 80)), send(own, false));
    }
}

#[test]
fn hints_follow_the_zone_of_the_node() {
    let endpoints = vec![
        hinted("10.0.0.2", "me", &["z1"], &[]),
        hinted("10.0.1.2", "other", &["z2"], &[]),
    ];
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", endpoints)]);
    let mut planner = planner(&cluster);
    planner.plan();
    let moved = node("me", &["192.0.2.1"], &["10.0.0.0/24"], "z2");
    assert!(planner.set_node(Some(&moved)));
    assert!(matches!(planner.plan(), Step::Delta(_)));
    let found = walk(&planner, &flow("10.96.0.1", 80));
    assert_eq!(found, send(&BOTH[1..], false));
}

#[test]
fn slices_belong_to_a_service_by_label_and_namespace_and_not_if_labels_give_them_away() {
    let spoil: [fn(&mut EndpointSlice); 4] = [
        |slice| slice.service = "other".to_owned(),
        |slice| slice.service = String::new(),
        |slice| slice.namespace = "other".to_owned(),
        |slice| slice.not_ours = true,
    ];
    for spoil in spoil {
        let mut cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
        spoil(&mut cluster.slices[0]);
        assert_eq!(verdict(&cluster, &flow("10.96.0.1", 80)), Verdict::Reject);
    }
}

#[test]
fn services_without_frontends_are_left_alone() {
    let spoil: [fn(&mut Service); 3] = [
        |service| service.not_ours = true,
        |service| service.kind = "ExternalName".to_owned(),
        |service| service.cluster_ips.clear(),
    ];
    for spoil in spoil {
        let mut cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
        spoil(&mut cluster.services[0]);
        for to in [
            flow("10.96.0.1", 80),
            flow("203.0.113.1", 80),
            at_node(30080),
        ] {
            assert_eq!(verdict(&cluster, &to), Verdict::Pass);
        }
    }
}

#[test]
fn a_service_of_two_families_leads_to_endpoints_of_each() {
    let endpoints = vec![endpoint("10.0.0.2", "me"), endpoint("fd00:0:0:1::2", "me")];
    let mut cluster = cluster(
        vec![service(&["10.96.0.1", "fd00:96::1"])],
        vec![slice("s", endpoints)],
    );
    let to_v6 = from("fd00:0:0:1::9", flow("fd00:96::1", 80));
    assert_eq!(
        verdict(&cluster, &flow("10.96.0.1", 80)),
        send(&BOTH[..1], false)
    );
    assert_eq!(
        verdict(&cluster, &to_v6),
        send(&["[fd00:0:0:1::2]:8080"], false)
    );
    cluster.services[0].cluster_ips.pop();
    assert_eq!(verdict(&cluster, &to_v6), Verdict::Pass);
}
