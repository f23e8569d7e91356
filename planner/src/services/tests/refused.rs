//! Addresses that are nobody's to serve, and those by which the agent reaches the API server.

use tweed_core::object::Event;
use tweed_core::object::service::Service;

use super::fixture::{
    BOTH, all_of, asked, at_node, balancer, both, cluster, endpoint, explain, explain_untouched,
    flow, from, options, outside, own, planner, port, send, service, slice, texts, verdict,
};
use super::walk::walk;
use crate::services::model::claims::Class;
use crate::services::model::spec::Spec;
use crate::services::tests::evaluator::{Cluster, Flow, Verdict};
use crate::services::{Notice, Refusal, Refused, ServicePlanner, Step};

/// A load balancer with these addresses, and as many external ones.
fn at(addresses: &[&str]) -> Cluster {
    let service = Service {
        load_balancer_ips: texts(addresses),
        external_ips: texts(addresses),
        ..balancer(false)
    };
    let mut cluster = cluster(vec![service], vec![slice("s", both())]);
    cluster.options.external_ips = true;
    cluster
}

fn planned(cluster: &Cluster) -> ServicePlanner {
    let mut planner = planner(cluster);
    planner.plan();
    planner
}

/// Where the only Service is not served.
fn refused(planner: &ServicePlanner) -> (Vec<Refused>, usize) {
    match planner.notices().pop() {
        Some(Notice::Refused(_, first, more)) => (first, more),
        None => (Vec::new(), 0),
        Some(other) => panic!("{other:?}"),
    }
}

fn to_v6(address: &str) -> Flow {
    from("fd00:0:0:1::9", flow(address, 80))
}

#[test]
fn addresses_that_are_nobodys_to_serve_are_left_alone_and_named() {
    for (address, why) in [
        ("127.0.0.1", Refusal::Loopback),
        ("127.0.0.53", Refusal::Loopback),
        ("::1", Refusal::Loopback),
        ("::ffff:127.0.0.1", Refusal::Loopback),
        ("169.254.1.1", Refusal::LinkLocal),
        ("169.254.169.254", Refusal::LinkLocal),
        ("fe80::1", Refusal::LinkLocal),
        ("224.0.0.1", Refusal::Multicast),
        ("ff02::1", Refusal::Multicast),
        ("0.0.0.0", Refusal::Unspecified),
        ("0.1.2.3", Refusal::Unspecified),
        ("::", Refusal::Unspecified),
        ("255.255.255.255", Refusal::Broadcast),
    ] {
        for slices in [vec![], vec![slice("s", both())]] {
            let mut cluster = at(&[address]);
            cluster.services[0].cluster_ips = texts(&["10.96.0.1", "fd00:96::1"]);
            cluster.slices = slices;
            let canonical = address.parse::<std::net::IpAddr>().unwrap().to_canonical();
            let to = if canonical.is_ipv4() {
                flow(&canonical.to_string(), 80)
            } else {
                to_v6(address)
            };
            for flow in [to, own(to), outside(to)] {
                assert_eq!(verdict(&cluster, &flow), Verdict::Pass, "{address}");
            }
            let of = |class| Refused::whole(class, canonical, why);
            let expected = [Class::LoadBalancer, Class::ExternalIp].map(of);
            assert_eq!(
                refused(&planned(&cluster)),
                (expected.into(), 0),
                "{address}"
            );
        }
    }
}

/// The API server refuses such slices since 1.21.1 (CVE-2021-25737), a file of manifests never.
#[test]
fn endpoints_that_are_nobodys_get_no_flow() {
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::ffff:127.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
    ] {
        let service = service(&["10.96.0.1", "fd00:96::1"]);
        let nobodys = slice("s", vec![endpoint(address, "me")]);
        let mut cluster = cluster(vec![service], vec![nobodys]);
        for to in [flow("10.96.0.1", 80), to_v6("fd00:96::1")] {
            for flow in [to, own(to), outside(to)] {
                assert_eq!(verdict(&cluster, &flow), Verdict::Reject, "{address}");
            }
        }
        cluster.slices.push(slice("good", both()));
        let to = flow("10.96.0.1", 80);
        assert_eq!(verdict(&cluster, &to), send(&BOTH, false), "{address}");
    }
}

/// Also where they are of the node, as those of k3s's load balancer.
#[test]
fn other_addresses_of_the_same_service_are_served() {
    let cluster = at(&["127.0.0.1", "203.0.113.1", "192.0.2.1"]);
    for to in [
        flow("203.0.113.1", 80),
        flow("192.0.2.1", 80),
        at_node(30080),
    ] {
        assert_eq!(verdict(&cluster, &to), send(&BOTH, true));
    }
}

#[test]
fn of_many_refused_addresses_the_first_are_named() {
    let texts: Vec<String> = (1..=9).map(|host| format!("127.0.0.{host}")).collect();
    let many: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (first, more) = refused(&planned(&at(&many)));
    assert_eq!((first.len(), more), (3, 15));
}

/// They are another one's matter.
#[test]
fn what_another_proxy_serves_is_not_named() {
    let mut cluster = at(&["127.0.0.1"]);
    cluster.services[0].not_ours = true;
    assert_eq!(refused(&planned(&cluster)), (Vec::new(), 0));
    let spec = Spec::read(&cluster.services[0], &options()).unwrap();
    assert_eq!(spec.load_balancer_ips.len(), 1);
}

#[test]
fn only_load_balancers_in_the_given_cidrs_are_served() {
    let mut cluster = at(&["203.0.113.1", "198.51.100.9"]);
    cluster.services[0].external_ips = texts(&["198.51.100.8"]);
    cluster.options.load_balancer_cidrs = vec!["203.0.113.0/24".parse().unwrap()];
    let served = send(&BOTH, true);
    assert_eq!(verdict(&cluster, &flow("203.0.113.1", 80)), served);
    assert_eq!(verdict(&cluster, &flow("198.51.100.8", 80)), served);
    assert_eq!(verdict(&cluster, &flow("198.51.100.9", 80)), Verdict::Pass);
    let outside = "198.51.100.9".parse().unwrap();
    let expected = Refused::whole(Class::LoadBalancer, outside, Refusal::OutsideCidrs);
    assert_eq!(refused(&planned(&cluster)), (vec![expected], 0));
    let reason = explain_untouched(&cluster, "198.51.100.9", 80);
    assert!(
        reason.contains("is not in --load-balancer-cidrs"),
        "{reason}"
    );
}

/// Otherwise the agents would hear of nothing any more, not even that the address is gone.
#[test]
fn the_api_server_is_never_a_load_balancer_nor_an_external_ip() {
    for (address, server) in [
        ("198.51.100.10", "198.51.100.10:80"),
        ("2001:db8:1::10", "[2001:db8:1::10]:80"),
        ("198.51.100.10", "[::ffff:198.51.100.10]:80"),
    ] {
        let to = if address.contains(':') {
            to_v6(address)
        } else {
            flow(address, 80)
        };
        for slices in [vec![], vec![slice("s", both())]] {
            let mut cluster = at(&[address]);
            cluster.services[0].cluster_ips = texts(&["10.96.0.1", "fd00:96::1"]);
            cluster.services[0].ports.push(port("udp", "UDP", 80, 0));
            cluster.services[0].ports.push(port("more", "TCP", 81, 0));
            cluster.services[0].source_ranges = texts(&["198.51.100.99/32"]);
            cluster.slices = slices;
            let mut planner = planned(&cluster);
            let servers = [server.parse().unwrap()].into();
            assert!(planner.set_api_servers(&servers), "learned live");
            assert!(matches!(planner.plan(), Step::Delta(_)));
            for flow in [to, own(to), outside(to)] {
                assert_eq!(walk(&planner, &flow), Verdict::Pass, "{server}");
            }
            // Other ports, and UDP, are not the API server's.
            for other in [Flow { port: 81, ..to }, Flow { protocol: 17, ..to }] {
                assert_ne!(walk(&planner, &other), Verdict::Pass, "{other:?}");
            }
            let (first, more) = refused(&planner);
            assert_eq!((first.len(), more), (2, 0), "{first:?}");
            assert!(first.iter().all(|one| one.why == Refusal::ApiServer));
            planner.set_api_servers(&[].into());
            planner.plan();
            assert_ne!(
                walk(&planner, &to),
                Verdict::Pass,
                "the name leads elsewhere now"
            );
        }
    }
}

#[test]
fn a_cluster_ip_of_the_api_server_is_served() {
    let mut cluster = at(&["10.96.0.1"]);
    cluster.api_servers = ["10.96.0.1:80".parse().unwrap()].into();
    let to = flow("10.96.0.1", 80);
    assert_eq!(verdict(&cluster, &to), send(&BOTH, false));
    assert_eq!(verdict(&cluster, &flow("10.96.0.1", 81)), Verdict::Reject);
}

/// A virtual address of the control plane, for example.
#[test]
fn an_api_server_in_a_service_cidr_is_reached() {
    let mut cluster = cluster(vec![service(&["10.96.0.1"])], vec![]);
    cluster.cidrs = vec![tweed_core::object::service_cidr::ServiceCidr {
        name: "kubernetes".to_owned(),
        cidrs: texts(&["10.96.0.0/16"]),
    }];
    let to = own(flow("10.96.9.9", 6443));
    assert_eq!(verdict(&cluster, &to), Verdict::Drop);
    cluster.api_servers = ["10.96.9.9:6443".parse().unwrap()].into();
    assert_eq!(verdict(&cluster, &to), Verdict::Pass);
    // A Service is given the address.
    cluster.services[0].cluster_ips = texts(&["10.96.9.9"]);
    assert_eq!(verdict(&cluster, &to), Verdict::Pass);
}

/// At an address of this node.
#[test]
fn a_node_port_never_takes_the_api_server() {
    let mut cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    for (server, expected) in [
        ("192.0.2.1:30080", Verdict::Pass),
        ("192.0.2.1:6443", send(&BOTH, true)),
        ("192.0.2.2:30080", send(&BOTH, true)),
        ("127.0.0.1:30080", send(&BOTH, true)),
    ] {
        cluster.api_servers = [server.parse().unwrap()].into();
        assert_eq!(verdict(&cluster, &at_node(30080)), expected, "{server}");
    }
    cluster.api_servers = ["192.0.2.1:30080".parse().unwrap()].into();
    let mut planner = planned(&cluster);
    let (first, _) = refused(&planner);
    assert_eq!(
        first[0].to_string(),
        "the node port 30080/TCP leads to the API server, or to the proxy before it"
    );
    let reason = explain_untouched(&cluster, "192.0.2.1", 30080);
    assert!(reason.contains("shop/web is not served"), "{reason}");
    // With all addresses it may be a virtual one of this machine.
    planner.apply_services(Event::Delete(tweed_core::object::Object::key(
        &cluster.services[0],
    )));
    planner.plan();
    assert_eq!(refused(&planner), (Vec::new(), 0));
    let everywhere = &mut cluster.options.node_port_addresses.networks;
    everywhere.push("0.0.0.0/0".parse().unwrap());
    cluster.api_servers = ["192.0.2.100:30080".parse().unwrap()].into();
    assert_eq!(verdict(&cluster, &at_node(30080)), Verdict::Pass);
}

#[test]
fn service_where_says_why_an_address_is_not_served() {
    for (address, server, why) in [
        ("127.0.0.1", "203.0.113.9:1", "is a loopback address"),
        (
            "198.51.100.10",
            "198.51.100.10:80",
            "leads to the API server",
        ),
    ] {
        let mut cluster = at(&[address]);
        cluster.api_servers = [server.parse().unwrap()].into();
        let reason = explain_untouched(&cluster, address, 80);
        assert!(
            reason.contains("shop/web") && reason.contains(why),
            "{reason}"
        );
    }
}

/// Asked for the Service itself: what is not served is no frontend of it, but a hint.
#[test]
fn service_where_lists_what_a_service_is_not_served_at() {
    let mut cluster = at(&["127.0.0.1", "198.51.100.10"]);
    cluster.api_servers = ["198.51.100.10:80".parse().unwrap()].into();
    let said = explain(&planned(&cluster), &asked(all_of("web"))).unwrap();
    let outer = said
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let frontends: Vec<&str> = outer.map(str::trim).collect();
    assert_eq!(
        frontends[..2],
        ["cluster IP 10.96.0.1:80", "node port 30080"]
    );
    assert!(frontends[2].starts_with("endpoints: "), "{said}");
    for part in [
        "127.0.0.1 is a loopback",
        "198.51.100.10, port 80/TCP leads",
    ] {
        let mut lines = said.lines();
        let is_note = |line: &str| line.starts_with("note: ") && line.contains(part);
        assert!(lines.any(is_note), "{part}: {said}");
    }
}
