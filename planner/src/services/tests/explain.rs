//! What explanations say, row by row.

use tweed_core::agent_socket::service::{
    Client, Destination, Endpoint, Fate, FrontendKind, Located, NoServiceFate, Path, Use, Where,
};
use tweed_core::object::endpoint_slice::Endpoint as SliceEndpoint;
use tweed_core::object::service_cidr::ServiceCidr;

use super::fixture::{
    balancer, both, cluster, ending, endpoint, planner, port, service, slice, texts,
};
use crate::services::desired::MAX_SLOTS;
use crate::services::evaluator::Cluster;
use crate::services::{ExplainError, Explanation, OwnAddresses};

fn asked(to: Destination, from: Option<Client>) -> Where {
    let all = false;
    Where { to, from, all }
}

fn address(address: &str, port: u16) -> Destination {
    Destination::Address {
        address: address.parse().unwrap(),
        protocol: 6,
        port,
    }
}

fn web() -> Destination {
    Destination::Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        port: None,
        protocol: None,
    }
}

fn try_explain(cluster: &Cluster, asked: &Where) -> Result<Explanation, ExplainError> {
    let mut planner = planner(cluster);
    planner.plan();
    planner.explain(asked, OwnAddresses::default())
}

fn explain(cluster: &Cluster, to: Destination, from: Option<Client>) -> Located {
    try_explain(cluster, &asked(to, from)).unwrap().located
}

/// Why each endpoint of the only port is in or out: of the cluster, and of this node.
fn uses(located: &Located) -> Vec<(String, Option<Use>, Option<Use>)> {
    let [port] = &located.ports[..] else {
        panic!("{located:?}");
    };
    let uses = port.endpoints.iter();
    uses.map(|one: &Endpoint| (one.at.to_string(), one.cluster, one.local))
        .collect()
}

fn paths(located: &Located) -> &[Path] {
    &located.ports[0].frontends[0].paths
}

#[test]
fn a_cluster_ip_says_where_each_origin_goes() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let located = explain(&cluster, address("10.96.0.1", 80), None);
    let facts = located.service.as_ref().unwrap();
    assert_eq!((&*facts.name, &*facts.kind), ("web", "ClusterIP"));
    let said = paths(&located).iter();
    let said: Vec<_> = said
        .map(|path| (path.from, path.fate, path.endpoints, path.masqueraded))
        .collect();
    let expected = [
        (Client::Pod, Fate::Sent, 2, false),
        (Client::Node, Fate::Sent, 2, true),
        (Client::Outside, Fate::Sent, 2, true),
    ];
    assert_eq!(said, expected);
    assert_eq!(located.ports[0].frontends[0].kind, FrontendKind::ClusterIp);
    let here: Vec<bool> = located.ports[0]
        .endpoints
        .iter()
        .map(|one| one.here)
        .collect();
    assert_eq!(here, [true, false]);
}

#[test]
fn a_client_that_is_an_endpoint_is_masqueraded_to_itself() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let from = |text: &str| Some(Client::Address(text.parse().unwrap()));
    for (client, hairpin) in [("10.0.0.2", true), ("10.0.0.3", false)] {
        let located = explain(&cluster, address("10.96.0.1", 80), from(client));
        let [path] = paths(&located) else {
            panic!("{located:?}");
        };
        assert_eq!((path.from, path.hairpin), (Client::Pod, hairpin));
    }
}

/// It comes with its own address by the backend `direct`, and the answer has to come back
/// by this node.
#[test]
fn a_pod_of_another_node_is_masqueraded_to_endpoints_of_other_nodes() {
    let (here, third) = (endpoint("10.0.0.2", "me"), endpoint("10.0.2.2", "third"));
    let from = |text: &str| Some(Client::Address(text.parse().unwrap()));
    for (endpoints, client, expected) in [
        (vec![third.clone()], "10.0.1.9", (true, false)),
        (vec![here.clone(), third.clone()], "10.0.1.9", (false, true)),
        (vec![here.clone()], "10.0.1.9", (false, false)),
        (vec![here, third.clone()], "10.0.0.9", (false, false)),
        (
            vec![endpoint("192.0.2.1", "me")],
            "10.0.1.9",
            (false, false),
        ),
        (vec![third], "198.51.100.1", (false, false)),
    ] {
        let cluster = cluster(vec![balancer(true)], vec![slice("s", endpoints)]);
        let located = explain(&cluster, address("203.0.113.1", 80), from(client));
        let path = &paths(&located)[0];
        let said = (path.masqueraded, path.to_other_nodes);
        assert_eq!(said, expected, "{client} {path:?}");
    }
}

/// Such as that of a VXLAN device, which is in the pod CIDR.
#[test]
fn a_client_whose_address_this_machine_has_is_the_node() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let mut planner = planner(&cluster);
    planner.plan();
    for (client, otherwise) in [
        ("10.0.0.0", Client::Pod),
        ("203.0.113.9", Client::Outside),
        ("192.0.2.1", Client::Node),
    ] {
        let from = Some(Client::Address(client.parse().unwrap()));
        let question = asked(address("10.96.0.1", 80), from);
        let said = |client: bool| {
            let own = OwnAddresses {
                client,
                ..OwnAddresses::default()
            };
            paths(&planner.explain(&question, own).unwrap().located)[0].from
        };
        assert_eq!((said(true), said(false)), (Client::Node, otherwise));
    }
}

#[test]
fn every_endpoint_says_why_it_is_in_or_out() {
    let hinted = |address: &str, node: &str, zone: &str| SliceEndpoint {
        zone_hints: texts(&[zone]),
        ..endpoint(address, node)
    };
    let not_ready = SliceEndpoint {
        ready: false,
        serving: false,
        ..endpoint("10.0.0.7", "me")
    };
    let endpoints = vec![
        hinted("10.0.0.2", "me", "z1"),
        hinted("10.0.1.2", "other", "z2"),
        ending("10.0.0.5", "me"),
        not_ready,
        hinted("10.0.1.9", "other", "z1"),
        endpoint("fd00:0:0:2::3", "other"),
    ];
    let cluster = cluster(vec![balancer(true)], vec![slice("s", endpoints)]);
    let located = explain(&cluster, address("203.0.113.1", 80), None);
    let out = |one| Some(one);
    assert_eq!(
        uses(&located),
        [
            ("10.0.0.2:8080".to_owned(), out(Use::Used), out(Use::Used)),
            (
                "10.0.1.9:8080".to_owned(),
                out(Use::Used),
                out(Use::NotLocal)
            ),
            (
                "10.0.0.5:8080".to_owned(),
                out(Use::Ending),
                out(Use::Ending)
            ),
            (
                "10.0.0.7:8080".to_owned(),
                out(Use::NotReady),
                out(Use::NotReady)
            ),
            (
                "10.0.1.2:8080".to_owned(),
                out(Use::OtherZone),
                out(Use::NotLocal)
            ),
        ]
    );
    let counts = located.ports[0].counts;
    assert_eq!((counts.known, counts.other_family), (5, 1));
    assert_eq!((counts.cluster, counts.local), (Some(2), Some(1)));
    assert_eq!(located.ports[0].endpoints[0].zones, ["z1"]);
}

#[test]
fn endpoints_that_are_hinted_to_nodes_are_out_on_others() {
    let hinted = |address: &str, node: &str| SliceEndpoint {
        node_hints: texts(&[node]),
        ..endpoint(address, node)
    };
    let endpoints = vec![hinted("10.0.0.2", "me"), hinted("10.0.1.2", "other")];
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", endpoints)]);
    let located = explain(&cluster, address("10.96.0.1", 80), None);
    assert_eq!(uses(&located)[1].1, Some(Use::OtherNode));
    assert_eq!(uses(&located)[1].2, None, "no frontend is local");
}

#[test]
fn endpoints_beyond_the_maximum_are_named_and_a_list_is_bounded() {
    let most = usize::from(MAX_SLOTS) * usize::from(MAX_SLOTS);
    let endpoints =
        (0..most + 1).map(|n| endpoint(&format!("10.1.{}.{}", n / 250, n % 250), "other"));
    let cluster = cluster(
        vec![service(&["10.96.0.1"])],
        vec![slice("s", endpoints.collect())],
    );
    let mut question = asked(address("10.96.0.1", 80), Some(Client::Pod));
    let explanation = try_explain(&cluster, &question).unwrap();
    let port = &explanation.located.ports[0];
    assert_eq!(
        (port.counts.known, port.counts.cluster),
        (most + 1, Some(most))
    );
    assert_eq!(port.endpoints.len() + port.more_endpoints, most + 1);
    assert_eq!(port.endpoints.len(), 16);
    question.all = true;
    let explanation = try_explain(&cluster, &question).unwrap();
    assert_eq!(explanation.located.ports[0].endpoints.len(), 600);
}

#[test]
fn the_traffic_policy_local_drops_what_has_no_endpoint_here() {
    let elsewhere = vec![endpoint("10.0.1.2", "other")];
    let cluster = cluster(vec![balancer(true)], vec![slice("s", elsewhere)]);
    let located = explain(&cluster, address("203.0.113.1", 80), None);
    let fates: Vec<Fate> = paths(&located).iter().map(|path| path.fate).collect();
    assert_eq!(fates, [Fate::Sent, Fate::Sent, Fate::NoLocalEndpoint]);
}

#[test]
fn source_ranges_are_shown_and_judge_a_client() {
    let mut limited = balancer(false);
    limited.source_ranges = texts(&["198.51.100.0/24"]);
    let cluster = cluster(vec![limited], vec![slice("s", both())]);
    for (client, fate) in [
        ("198.51.100.7", Fate::Sent),
        ("198.51.101.7", Fate::SourceNotAllowed),
        ("192.0.2.1", Fate::SourceNotAllowed),
    ] {
        let from = Some(Client::Address(client.parse().unwrap()));
        let located = explain(&cluster, address("203.0.113.1", 80), from);
        assert_eq!(paths(&located)[0].fate, fate, "{client}");
        let ranges = located.ports[0].frontends[0].source_ranges.as_ref();
        let ranges = ranges.unwrap();
        assert_eq!(ranges.ranges, ["198.51.100.0-198.51.100.255"]);
        assert!(!ranges.node);
    }
}

#[test]
fn a_service_is_shown_with_all_its_frontends() {
    let cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    let located = explain(&cluster, web(), Some(Client::Outside));
    let kinds = located.ports[0].frontends.iter().map(|one| one.kind);
    let kinds: Vec<FrontendKind> = kinds.collect();
    let expected = [
        FrontendKind::ClusterIp,
        FrontendKind::LoadBalancer,
        FrontendKind::NodePort,
    ];
    assert_eq!(kinds, expected);
    assert!(located.hints.iter().any(|hint| hint.contains("192.0.2.1")));
    let at_port = Destination::NodePort {
        protocol: 6,
        port: 30080,
    };
    let located = explain(&cluster, at_port, None);
    assert_eq!(located.ports[0].frontends.len(), 1);
    // A Service that claims another one's address does not get it.
    let mut thief = balancer(false);
    thief.name = "thief".to_owned();
    thief.cluster_ips = texts(&["10.96.0.2"]);
    thief.created = Some(1);
    let mut cluster = cluster;
    cluster.services.push(thief);
    let to = Destination::Service {
        namespace: "shop".to_owned(),
        name: "thief".to_owned(),
        port: Some(80),
        protocol: Some(6),
    };
    let located = explain(&cluster, to, None);
    let taken = located.ports[0].frontends.iter();
    let taken: Vec<Option<&str>> = taken.map(|one| one.taken_by.as_deref()).collect();
    assert_eq!(taken, [None, Some("shop/web"), Some("shop/web")]);
}

#[test]
fn a_destination_that_no_service_has_says_why() {
    let mut foreign = service(&["10.96.0.7"]);
    foreign.name = "foreign".to_owned();
    foreign.not_ours = true;
    let mut cluster = cluster(vec![balancer(false), foreign], vec![slice("s", both())]);
    cluster.cidrs.push(ServiceCidr {
        name: "kubernetes".to_owned(),
        cidrs: texts(&["10.96.0.0/16"]),
    });
    for (to, fate, says) in [
        (
            address("10.96.0.1", 81),
            NoServiceFate::Rejected,
            "Service shop/web, which has no port 81/TCP; it has 80/TCP",
        ),
        (
            address("10.96.0.9", 80),
            NoServiceFate::Dropped,
            "no Service has it",
        ),
        (
            address("10.96.0.7", 80),
            NoServiceFate::Untouched,
            "another proxy",
        ),
        (
            address("203.0.113.1", 81),
            NoServiceFate::Untouched,
            "no port 81/TCP",
        ),
        (
            address("192.0.2.2", 30080),
            NoServiceFate::Untouched,
            "this machine does not have",
        ),
        (
            address("192.0.2.1", 30081),
            NoServiceFate::Untouched,
            "no Service has the node port",
        ),
        (
            address("127.0.0.1", 30080),
            NoServiceFate::Untouched,
            "node port of Service shop/web",
        ),
        (
            address("8.8.8.8", 53),
            NoServiceFate::Untouched,
            "in no network of cluster IPs",
        ),
    ] {
        let located = explain(&cluster, to.clone(), None);
        let none = located.none.unwrap_or_else(|| panic!("{to}"));
        assert_eq!(none.fate, fate, "{to}");
        assert!(none.reason.contains(says), "{to}: {}", none.reason);
    }
}

#[test]
fn a_service_without_an_address_or_a_port_is_an_error_and_without_endpoints_a_hint() {
    let mut named = service(&["10.96.0.1"]);
    named.ports = vec![port("web", "TCP", 80, 0)];
    let cluster = cluster(vec![named], vec![slice("s", both())]);
    let located = explain(&cluster, address("10.96.0.1", 80), None);
    assert_eq!(paths(&located)[0].fate, Fate::Rejected);
    let hint = located.hints.join("\n");
    assert!(hint.contains("\"http\" (TCP)"), "{hint}");
    let ask = |name: &str, port| {
        let to = Destination::Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            port,
            protocol: None,
        };
        try_explain(&cluster, &asked(to, None))
            .unwrap_err()
            .to_string()
    };
    assert!(ask("headless", None).contains("headless"));
    assert!(ask("web", Some(81)).contains("it has 80/TCP"));
    let unknown = crate::services::ServicePlanner::new(cluster.options);
    let error = unknown
        .explain(&asked(web(), None), OwnAddresses::default())
        .unwrap_err();
    assert!(error.to_string().contains("EndpointSlices"), "{error}");
}
