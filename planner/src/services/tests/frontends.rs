//! Who may use which frontend, row by row, and what is not for the kernel.

use std::net::Ipv4Addr;

use tweed_core::object::endpoint_slice::{EndpointSlice, SlicePort};
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object as _};

use super::fixture::{
    BOTH, at_node, balancer, both, cluster, ending, endpoint, flow, from, list, options, outside,
    own, own_node, planner, port, send, service, slice, texts, verdict,
};
use super::walk::walk;
use crate::services::desired::{Frontend, HealthCheck, Tracked};
use crate::services::tests::evaluator::{Flow, Verdict};
use crate::services::{Conflict, Notice, ServicePlanner, Step, WithoutLocal};

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
    for nobody in ["everywhere", "10.0.0.0/33"] {
        cluster.services[0].source_ranges = texts(&[nobody]);
        assert_eq!(verdict(&cluster, &far), Verdict::Drop);
    }
    cluster.services[0].source_ranges = texts(&["2001:db8::/129"]);
    assert_eq!(verdict(&cluster, &far), send(&BOTH, true));
    cluster.services[0].source_ranges = texts(&["198.051.100.0/24"]);
    assert_eq!(verdict(&cluster, &far), send(&BOTH, true));
    assert_eq!(verdict(&cluster, &from("192.0.2.9", to)), Verdict::Drop);
}

#[test]
fn the_node_passes_a_limit_by_a_range_of_its_address_alone_and_as_long_as_there_is_one() {
    let mut limited = balancer(false);
    limited.source_ranges = texts(&["192.0.2.1/32", "198.51.100.0/25"]);
    let mut cluster = cluster(vec![limited.clone()], vec![slice("s", both())]);
    let to = flow("203.0.113.1", 80);
    assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
    // The last address of a wider range, and the first.
    for range in ["192.0.2.0/31", "192.0.2.1/32"] {
        cluster.services[0].source_ranges = texts(&[range]);
        assert_eq!(verdict(&cluster, &own(to)), send(&BOTH, true));
    }
    let mut planner = planner(&cluster);
    planner.plan();
    assert_eq!(planner.desired().open_to_node.len(), 1);
    limited.source_ranges.clear();
    planner.apply_services(Event::Apply(limited));
    planner.plan();
    assert_eq!(planner.desired().open_to_node.len(), 0);
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
    endpoints.ports.push(SlicePort {
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
    service.cluster_ips.push("fd00:96::1".to_owned());
    service.ports.push(port("metrics", "TCP", 9090, 0));
    let mut endpoints = both();
    endpoints.extend([endpoint("10.0.0.3", "me"), ending("10.0.0.4", "me")]);
    let mut slice = slice("s", endpoints);
    let mut second = slice.ports[0].clone();
    second.name = "metrics".to_owned();
    second.port = 9090;
    slice.ports.push(second);
    // The same pod by its other family is no further endpoint.
    let mut v6 = slice.clone();
    v6.name = "v6".to_owned();
    v6.endpoints = vec![endpoint("fd00:0:0:1::2", "me")];
    let mut planner = planner(&cluster(vec![service.clone()], vec![slice, v6]));
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
    let mut others = [service.clone(), service];
    others[0].external_local = false;
    others[1].kind = "NodePort".to_owned();
    for other in others {
        planner.apply_services(Event::Apply(other));
        planner.plan();
        assert_eq!(check(&planner), None);
    }
}

#[test]
fn a_service_port_is_without_local_endpoints_if_others_have_them_and_the_policy_is_local() {
    let elsewhere = || slice("s", vec![endpoint("10.0.1.2", "other")]);
    let mut service = balancer(true);
    let mut planner = planner(&cluster(vec![service.clone()], vec![elsewhere()]));
    let mut without = |event: Option<Event<Service>>, slice: Option<EndpointSlice>| {
        event.map(|event| planner.apply_services(event));
        slice.map(|slice| planner.apply_endpoint_slices(Event::Apply(slice)));
        planner.plan();
        let WithoutLocal { internal, external } = planner.without_local();
        (internal, external)
    };
    assert_eq!(without(None, None), (0, 1));
    service.internal_local = true;
    assert_eq!(without(Some(Event::Apply(service.clone())), None), (1, 1));
    assert_eq!(without(None, Some(slice("s", both()))), (0, 0));
    assert_eq!(without(None, Some(slice("s", Vec::new()))), (0, 0));
    assert_eq!(without(None, Some(elsewhere())), (1, 1));
    // One that has endpoints here, but no frontend yet that is reached from outside.
    (service.internal_local, service.load_balancer_ips) = (false, Vec::new());
    for port in &mut service.ports {
        port.node_port = 0;
    }
    let pending = Some(Event::Apply(service.clone()));
    assert_eq!(without(pending, Some(slice("s", both()))), (0, 0));
    // One that nobody reaches from outside has no flows from there that could be lost.
    assert_eq!(without(None, Some(elsewhere())), (0, 0));
    service.load_balancer_ips = texts(&["203.0.113.1"]);
    assert_eq!(without(Some(Event::Apply(service.clone())), None), (0, 1));
    service.load_balancer_ips = texts(&["2001:db8::1"]);
    assert_eq!(without(Some(Event::Apply(service.clone())), None), (0, 0));
    assert_eq!(without(Some(Event::Delete(service.key())), None), (0, 0));
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
    assert_eq!(walk(&planner, &to), send(&BOTH, true));
    let notices = planner.notices();
    let names: Vec<_> = notices
        .iter()
        .map(|notice| match notice {
            Notice::Conflict(conflict) => {
                assert!(!conflict.more);
                let services = conflict.services.iter();
                services.map(|one| &*one.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, [["web", "api"], ["web", "api"]]);
    planner.apply_services(Event::Delete(tweed_core::object::Object::key(&older)));
    planner.plan();
    assert_eq!(walk(&planner, &to), Verdict::Reject);
    assert!(planner.notices().is_empty());
}

/// Not that of a Service that was there before, nor by an address of every other kind.
#[test]
fn a_cluster_ip_is_no_other_services() {
    let claimed = texts(&["10.96.0.10", "fd00:96::10"]);
    let thief = Service {
        load_balancer_ips: claimed.clone(),
        external_ips: claimed.clone(),
        created: Some(1),
        ..balancer(false)
    };
    let dns = Service {
        name: "dns".to_owned(),
        created: Some(2),
        cluster_ips: claimed,
        ..service(&[])
    };
    let endpoints = vec![
        endpoint("10.0.1.53", "other"),
        endpoint("fd00::53", "other"),
    ];
    let mut of_dns = slice("dns", endpoints);
    of_dns.service = "dns".to_owned();
    let mut cluster = cluster(vec![thief, dns], vec![slice("s", both()), of_dns]);
    cluster.options.external_ips = true;
    for (to, own_endpoint) in [
        (flow("10.96.0.10", 80), "10.0.1.53:8080"),
        (
            from("fd00:0:0:1::9", flow("fd00:96::10", 80)),
            "[fd00::53]:8080",
        ),
    ] {
        assert_eq!(verdict(&cluster, &to), send(&[own_endpoint], false));
        assert_eq!(verdict(&cluster, &outside(to)), send(&[own_endpoint], true));
    }
}

/// Whoever may write Services can make as many as they like claim one frontend. With work
/// for each of them at each change of another one this test would not end.
#[test]
fn many_services_that_claim_one_frontend_delay_nobody() {
    const COUNT: u32 = 5000;
    let claimant = |number: u32| {
        let mut claimant = balancer(false);
        claimant.name = format!("web{number:04}");
        claimant.created = Some(number.into());
        claimant.cluster_ips = vec![Ipv4Addr::from(0x0a60_0000 + number).to_string()];
        claimant
    };
    let services: Vec<Service> = (0..COUNT).map(claimant).collect();
    let mut planner = planner(&cluster(services.clone(), Vec::new()));
    planner.plan();
    let named = |planner: &ServicePlanner| -> Vec<(Vec<String>, bool)> {
        let conflict = |notice| match notice {
            Notice::Conflict(Conflict { services, more, .. }) => (
                services.iter().map(|one| one.name.to_string()).collect(),
                more,
            ),
            other => panic!("{other:?}"),
        };
        planner.notices().into_iter().map(conflict).collect()
    };
    let names = |numbers: std::ops::Range<u32>| -> Vec<String> {
        numbers.map(|number| format!("web{number:04}")).collect()
    };
    // The address of the load balancer, and the node port.
    assert_eq!(named(&planner), vec![(names(0..8), true); 2]);
    // One after the other goes, the one that has the frontends first.
    for service in &services[..(COUNT - 8) as usize] {
        planner.apply_services(Event::Delete(service.key()));
        planner.plan();
    }
    assert_eq!(named(&planner), vec![(names(COUNT - 8..COUNT), false); 2]);
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
    planner.set_node(own_node(&cluster));
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
    assert_eq!(walk(&planner, &flow("10.96.0.1", 80)), Verdict::Reject);
}
