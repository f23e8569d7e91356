//! What Services mean, row by row: each is held against the plan and the evaluator.

use tweed_core::object::Event;
use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice};
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;

use super::fixture::{
    cluster, ending, endpoint, flow, list, node, options, planner, port, send, service, slice,
    texts,
};
use super::walk::{check, walk};
use crate::services::desired::{Frontend, HealthCheck, Tracked};
use crate::services::evaluator::{Cluster, Flow, Verdict};
use crate::services::{Notice, ServicePlanner, Step};

/// What becomes of a flow by the plan, on which the evaluator agrees.
fn verdict(cluster: &Cluster, flow: &Flow) -> Verdict {
    let mut planner = planner(cluster);
    assert_eq!(planner.plan(), Step::Full);
    check(planner.desired());
    let verdict = walk(planner.desired(), flow);
    assert_eq!(cluster.evaluate(flow), verdict, "{flow:?}");
    verdict
}

fn from(source: &str, flow: Flow) -> Flow {
    Flow {
        source: source.parse().unwrap(),
        ..flow
    }
}

/// From this node itself.
fn own(flow: Flow) -> Flow {
    Flow {
        is_own: true,
        ..from("192.0.2.1", flow)
    }
}

/// From outside the cluster.
fn outside(flow: Flow) -> Flow {
    from("198.51.100.1", flow)
}

/// To a node port of this node.
fn at_node(port: u16) -> Flow {
    Flow {
        is_local: true,
        ..flow("192.0.2.1", port)
    }
}

fn both() -> Vec<Endpoint> {
    vec![endpoint("10.0.0.2", "me"), endpoint("10.0.1.2", "other")]
}

/// A load balancer with node ports.
fn balancer(external_local: bool) -> Service {
    Service {
        kind: "LoadBalancer".to_owned(),
        load_balancer_ips: texts(&["203.0.113.1"]),
        ports: vec![port("http", "TCP", 80, 30080)],
        external_local,
        ..service(&["10.96.0.1"])
    }
}

const BOTH: [&str; 2] = ["10.0.0.2:8080", "10.0.1.2:8080"];

#[test]
fn a_cluster_ip_masquerades_all_but_pods() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let to = flow("10.96.0.1", 80);
    assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
    assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH, true));
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

#[test]
fn the_external_policy_local_keeps_clients_addresses_and_lets_the_node_and_pods_reach_all() {
    let cluster = cluster(vec![balancer(true)], vec![slice("s", both())]);
    for to in [flow("203.0.113.1", 80), at_node(30080)] {
        assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
        assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
        assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH[..1], false));
    }
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
    assert!(planner.set_node("me", Some(&moved)));
    assert!(matches!(planner.plan(), Step::Delta(_)));
    let found = walk(planner.desired(), &flow("10.96.0.1", 80));
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

#[test]
fn source_ranges_are_about_addresses_of_load_balancers_and_not_about_node_ports() {
    let mut cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    cluster.services[0].source_ranges = texts(&["198.51.100.0/25 ", "10.0.0.0/8"]);
    let to = flow("203.0.113.1", 80);
    let far = from("198.51.100.200", to);
    assert_eq!(verdict(&cluster, &outside(to)), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &to), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &far), Verdict::Drop);
    assert_eq!(verdict(&cluster, &own(to)), Verdict::Drop);
    assert_eq!(
        verdict(&cluster, &from("198.51.100.200", at_node(30080))),
        send(&BOTH, true)
    );
    let ranges = &mut cluster.services[0].source_ranges;
    ranges.push("192.0.2.0/24".to_owned());
    assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
    for no_limit in ["0.0.0.0/0", " 0.0.0.0/0 "] {
        cluster.services[0].source_ranges = texts(&["198.51.100.0/25", no_limit]);
        assert_eq!(verdict(&cluster, &far), send(&BOTH, true));
    }
    // Those of another family limit nothing, and what cannot be read lets nobody pass.
    cluster.services[0].source_ranges = texts(&["2001:db8::/32"]);
    assert_eq!(verdict(&cluster, &far), send(&BOTH, true));
    cluster.services[0].source_ranges = texts(&["everywhere"]);
    assert_eq!(verdict(&cluster, &far), Verdict::Drop);
}

#[test]
fn external_ips_count_only_if_allowed_and_are_limited_as_load_balancers_are() {
    let mut service = service(&["10.96.0.1"]);
    service.external_ips = texts(&["198.51.100.7"]);
    service.source_ranges = texts(&["10.0.0.0/8"]);
    let mut cluster = cluster(vec![service], vec![slice("s", both())]);
    let to = flow("198.51.100.7", 80);
    assert_eq!(verdict(&cluster, &to), Verdict::Pass);
    cluster.options.external_ips = true;
    assert_eq!(verdict(&cluster, &to), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &outside(to)), Verdict::Drop);
}

#[test]
fn node_ports_are_where_the_option_says_and_never_on_loopback() {
    let mut cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    let at = |address: &str| Flow {
        is_local: true,
        ..flow(address, 30080)
    };
    for (primary, networks, expected) in [
        (true, &[][..], [true, false, false]),
        (false, &[], [false, false, false]),
        (false, &["192.0.2.8/29"], [false, true, false]),
        (true, &["192.0.2.8/29"], [true, true, false]),
        (false, &["0.0.0.0/0", "127.0.0.0/8"], [true, true, false]),
    ] {
        let places = &mut cluster.options.node_port_addresses;
        places.primary = primary;
        places.networks = networks.iter().map(|one| one.parse().unwrap()).collect();
        for (address, expected) in ["192.0.2.1", "192.0.2.9", "127.0.0.1"].iter().zip(expected) {
            let found = verdict(&cluster, &at(address)) != Verdict::Pass;
            assert_eq!(found, expected, "{address} {primary} {networks:?}");
        }
    }
    let elsewhere = Flow {
        is_local: false,
        ..at("192.0.2.9")
    };
    assert_eq!(verdict(&cluster, &elsewhere), Verdict::Pass);
}

#[test]
fn an_address_of_a_load_balancer_has_no_node_ports_unless_it_is_the_nodes() {
    let mut cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    cluster.options.node_port_addresses.networks = vec!["0.0.0.0/0".parse().unwrap()];
    let at = Flow {
        is_local: true,
        ..flow("203.0.113.1", 30080)
    };
    assert_eq!(verdict(&cluster, &at), Verdict::Pass);
    cluster.services[0].load_balancer_ips = texts(&["192.0.2.1"]);
    assert_eq!(verdict(&cluster, &at_node(30080)), send(&BOTH, true));
}

#[test]
fn tcp_and_udp_on_one_number_are_two_ports() {
    let mut service = service(&["10.96.0.1"]);
    service.ports.push(port("dns", "UDP", 80, 0));
    let mut endpoints = slice("s", both());
    endpoints
        .ports
        .push(tweed_core::object::endpoint_slice::SlicePort {
            name: "dns".to_owned(),
            protocol: "UDP".to_owned(),
            port: 5353,
        });
    let cluster = cluster(vec![service], vec![endpoints]);
    let udp = Flow {
        protocol: 17,
        ..flow("10.96.0.1", 80)
    };
    assert_eq!(
        verdict(&cluster, &flow("10.96.0.1", 80)),
        send(&BOTH, false)
    );
    assert_eq!(
        verdict(&cluster, &udp),
        send(&["10.0.0.2:5353", "10.0.1.2:5353"], false)
    );
}

#[test]
fn frontends_of_udp_are_listed_with_all_that_serve_and_those_of_tcp_are_not() {
    let mut service = service(&["10.96.0.1"]);
    service.ports.push(port("dns", "UDP", 53, 0));
    let mut endpoints = slice(
        "s",
        vec![ending("10.0.0.2", "me"), endpoint("10.0.1.2", "other")],
    );
    endpoints.ports[0].name = "dns".to_owned();
    endpoints.ports[0].protocol = "UDP".to_owned();
    let mut planner = planner(&cluster(vec![service], vec![endpoints]));
    planner.plan();
    let tracked: Vec<_> = planner.desired().tracked.iter().collect();
    let [(Tracked::Address(frontend), serving)] = &*tracked else {
        panic!("{tracked:?}");
    };
    let expected = Frontend {
        address: "10.96.0.1".parse().unwrap(),
        protocol: 17,
        port: 53,
    };
    assert_eq!(*frontend, expected);
    let serving: Vec<String> = serving.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(serving, ["10.0.0.2", "10.0.1.2"]);
}

#[test]
fn a_health_check_counts_the_ready_endpoints_of_this_node_once() {
    let mut service = balancer(true);
    service.health_check_node_port = 31000;
    service.ports.push(port("metrics", "TCP", 9090, 0));
    let mut endpoints = both();
    endpoints.extend([endpoint("10.0.0.3", "me"), ending("10.0.0.4", "me")]);
    let mut slice = slice("s", endpoints);
    let mut second = slice.ports[0].clone();
    second.name = "metrics".to_owned();
    second.port = 9090;
    slice.ports.push(second);
    let mut planner = planner(&cluster(vec![service.clone()], vec![slice]));
    planner.plan();
    let check = |planner: &ServicePlanner| {
        let check = planner.desired().health_checks.get(&31000);
        check.map(
            |HealthCheck {
                 service,
                 local_endpoints,
             }| { (service.name.to_string(), *local_endpoints) },
        )
    };
    assert_eq!(check(&planner), Some(("web".to_owned(), 2)));
    service.external_local = false;
    planner.apply_services(Event::Apply(service));
    planner.plan();
    assert_eq!(check(&planner), None);
}

#[test]
fn a_frontend_that_two_services_claim_is_the_older_ones_until_it_is_gone() {
    let mut younger = balancer(false);
    (younger.name, younger.created) = ("api".to_owned(), Some(9));
    younger.cluster_ips = texts(&["10.96.0.2"]);
    let mut older = balancer(false);
    older.created = Some(8);
    let mut planner = planner(&cluster(
        vec![younger, older.clone()],
        vec![slice("s", both())],
    ));
    planner.plan();
    let to = flow("203.0.113.1", 80);
    assert_eq!(walk(planner.desired(), &to), send(&BOTH, true));
    let notices = planner.notices();
    let names: Vec<_> = notices
        .iter()
        .map(|notice| match notice {
            Notice::Contested(_, services) => services.iter().map(|one| &*one.name).collect(),
            Notice::Crowded(..) => vec!["crowded"],
        })
        .collect();
    assert_eq!(names, [["web", "api"], ["web", "api"]]);
    planner.apply_services(Event::Delete(tweed_core::object::Object::key(&older)));
    planner.plan();
    assert_eq!(walk(planner.desired(), &to), Verdict::Reject);
    assert!(planner.notices().is_empty());
}

#[test]
fn nothing_is_planned_before_everything_is_known() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let mut planner = ServicePlanner::new(options());
    let hold = |missing: &[&str]| Step::Hold(texts(missing));
    let all = ["Services", "EndpointSlices", "ServiceCIDRs", "Nodes"];
    assert_eq!(planner.plan(), hold(&all));
    for event in list(&cluster.services) {
        planner.apply_services(event);
    }
    assert_eq!(planner.plan(), hold(&all[1..]));
    for event in list(&cluster.slices) {
        planner.apply_endpoint_slices(event);
    }
    planner.set_nodes(&cluster.nodes);
    assert_eq!(planner.plan(), hold(&all[2..3]));
    for event in list::<ServiceCidr>(&[]) {
        planner.apply_service_cidrs(event);
    }
    assert_eq!(planner.plan(), Step::Full);
    // A list that is under way changes nothing, and one that ends replaces all.
    planner.apply_endpoint_slices(Event::Init);
    assert_eq!(planner.plan(), Step::Unchanged);
    planner.apply_endpoint_slices(Event::InitDone);
    assert!(matches!(planner.plan(), Step::Delta(_)));
    assert_eq!(
        walk(planner.desired(), &flow("10.96.0.1", 80)),
        Verdict::Reject
    );
}
