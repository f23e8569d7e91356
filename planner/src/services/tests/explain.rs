//! What explanations say, row by row.

use tweed_component::explain::{Client, Destination, Where};
use tweed_core::object::endpoint_slice::Endpoint as SliceEndpoint;
use tweed_core::object::service_cidr::ServiceCidr;

use super::fixture::{
    self, all_of, asked, balancer, both, cluster, destination, ending, endpoint, planner, port,
    service, slice, texts,
};
use crate::services::desired::MAX_SLOTS;
use crate::services::tests::evaluator::Cluster;
use crate::services::{ExplainError, OwnAddresses, Places};

fn try_explain(cluster: &Cluster, asked: &Where) -> Result<String, ExplainError> {
    let mut planner = planner(cluster);
    planner.plan();
    fixture::explain(&planner, asked)
}

fn explain(cluster: &Cluster, to: Destination, from: Option<Client>) -> String {
    let asked = asked(to);
    try_explain(cluster, &Where { from, ..asked }).unwrap()
}

fn address(text: &str) -> Option<Client> {
    Some(Client::Address(text.parse().unwrap()))
}

/// The lines that begin with this, without their indentation.
fn lines<'a>(said: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = said.lines().map(str::trim_start);
    lines.filter(|line| line.starts_with(begin)).collect()
}

#[test]
fn an_answer_says_who_goes_where_and_why() {
    let mut web = balancer(true);
    web.affinity_seconds = Some(60);
    web.health_check_node_port = 30100;
    web.source_ranges = texts(&["198.51.100.0/24"]);
    let mut endpoints = both();
    endpoints.push(endpoint("fd00:0:0:1::9", "other"));
    let cluster = cluster(vec![web], vec![slice("s", endpoints)]);
    let expected = "\
203.0.113.1:80/TCP, as node me knows it
type LoadBalancer (Service shop/web): internalTrafficPolicy Cluster, externalTrafficPolicy Local, affinity by client address for 60 s, health checks at port 30100
port \"http\" 80/TCP, IPv4
  load balancer's address 203.0.113.1:80
    only for the sources 198.51.100.0-198.51.100.255; this node is not among them
    from pods goes to one of 2 endpoints (group 0x80000000), keeps its address
    from this node is DROPPED: loadBalancerSourceRanges leaves it out
    from outside goes to one of 1 endpoints of this node (group 0x80000100), keeps its address
  endpoints: 2, 2 used by the policy Cluster, 1 by Local; 1 of the other family
    10.0.0.2:8080 on this node, ready, is used (Node me)
    10.0.1.2:8080 on another node, ready, is used by the policy Cluster, NOT by Local (Node other): it is on another node
";
    assert_eq!(
        explain(&cluster, destination("203.0.113.1", 80), None),
        expected
    );
}

#[test]
fn a_cluster_ip_says_where_each_origin_goes() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let said = explain(&cluster, destination("10.96.0.1", 80), None);
    let facts =
        "type ClusterIP (Service shop/web): internalTrafficPolicy Cluster, no session affinity";
    assert_eq!(lines(&said, "type "), [facts]);
    assert_eq!(lines(&said, "cluster IP "), ["cluster IP 10.96.0.1:80"]);
    let senders = [
        ("pods", "keeps its address"),
        ("this node", "masqueraded"),
        ("outside", "masqueraded"),
    ];
    let expected = senders.map(|(from, becomes)| {
        format!("from {from} goes to one of 2 endpoints (group 0x40000000), {becomes}")
    });
    assert_eq!(lines(&said, "from "), expected);
}

#[test]
fn a_client_that_is_an_endpoint_is_masqueraded_to_itself() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    for (client, hairpin) in [("10.0.0.2", true), ("10.0.0.3", false)] {
        let said = explain(&cluster, destination("10.96.0.1", 80), address(client));
        assert!(
            said.starts_with(&format!("10.96.0.1:80/TCP from {client}, ")),
            "{said}"
        );
        let [from] = lines(&said, "from ")[..] else {
            panic!("{said}");
        };
        assert!(from.starts_with("from pods "), "{said}");
        let itself = "keeps its address, but for a connection to itself";
        assert_eq!(from.ends_with(itself), hairpin, "{said}");
    }
}

/// It comes with its own address by the backend `direct`, and the answer has to come back
/// by this node.
#[test]
fn a_pod_of_another_node_is_masqueraded_to_endpoints_of_other_nodes() {
    let (here, third) = (endpoint("10.0.0.2", "me"), endpoint("10.0.2.2", "third"));
    let (all, keeps) = ("masqueraded", "keeps its address");
    let some = "keeps its address, but for connections to endpoints of other nodes";
    for (endpoints, client, expected) in [
        (vec![third.clone()], "10.0.1.9", all),
        (vec![here.clone(), third.clone()], "10.0.1.9", some),
        (vec![here.clone()], "10.0.1.9", keeps),
        (vec![here, third.clone()], "10.0.0.9", keeps),
        (vec![endpoint("192.0.2.1", "me")], "10.0.1.9", keeps),
        (vec![third], "198.51.100.1", keeps),
    ] {
        let cluster = cluster(vec![balancer(true)], vec![slice("s", endpoints)]);
        let said = explain(&cluster, destination("203.0.113.1", 80), address(client));
        let [from] = lines(&said, "from ")[..] else {
            panic!("{said}");
        };
        let is_said = from.ends_with(&format!("), {expected}"));
        // To whom nothing is sent, nothing is said of masquerading.
        assert!(is_said || from.contains("DROPPED"), "{client} {said}");
    }
}

/// Such as that of a VXLAN device, which is in the pod CIDR.
#[test]
fn a_client_whose_address_this_machine_has_is_the_node() {
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", both())]);
    let mut planner = planner(&cluster);
    planner.plan();
    for (client, otherwise) in [
        ("10.0.0.0", "from pods "),
        ("203.0.113.9", "from outside "),
        ("192.0.2.1", "from this node "),
    ] {
        let question = Where {
            from: address(client),
            ..asked(destination("10.96.0.1", 80))
        };
        let said = |client: bool| {
            let own = OwnAddresses {
                client,
                ..OwnAddresses::default()
            };
            let explained = planner.explain(&question, own, &Places::default());
            tweed_component::explain::text(&explained.unwrap().steps)
        };
        assert_eq!(lines(&said(true), "from this node ").len(), 1, "{client}");
        assert_eq!(lines(&said(false), otherwise).len(), 1, "{client}");
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
    let said = explain(&cluster, destination("203.0.113.1", 80), None);
    let expected = "
  endpoints: 5, 2 used by the policy Cluster, 1 by Local; 1 of the other family
    10.0.0.2:8080 on this node, ready, for zones z1, is used (Node me)
    10.0.1.9:8080 on another node, ready, for zones z1, is used by the policy Cluster, NOT by Local (Node other): it is on another node
    10.0.0.5:8080 on this node, serving, terminating, is NOT used (Node me): it is about to end and others are ready
    10.0.0.7:8080 on this node, not ready, is NOT used (Node me): it is not ready
    10.0.1.2:8080 on another node, ready, for zones z2, is NOT used (Node other): by Cluster because hints give it to other zones, by Local because it is on another node
";
    assert!(said.ends_with(expected), "{said}");
}

#[test]
fn endpoints_that_are_hinted_to_nodes_are_out_on_others() {
    let hinted = |address: &str, node: &str| SliceEndpoint {
        node_hints: texts(&[node]),
        ..endpoint(address, node)
    };
    let endpoints = vec![hinted("10.0.0.2", "me"), hinted("10.0.1.2", "other")];
    let cluster = cluster(vec![service(&["10.96.0.1"])], vec![slice("s", endpoints)]);
    let said = explain(&cluster, destination("10.96.0.1", 80), None);
    let other = "10.0.1.2:8080 on another node, ready, is NOT used (Node other): hints give it to other nodes";
    assert_eq!(lines(&said, "10.0.1.2"), [other]);
    // No frontend is local.
    assert_eq!(lines(&said, "endpoints: "), ["endpoints: 2, 1 used"]);
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
    let mut question = Where {
        from: Some(Client::Pod),
        ..asked(destination("10.96.0.1", 80))
    };
    let said = try_explain(&cluster, &question).unwrap();
    let counted = format!("endpoints: {}, {most} used", most + 1);
    assert_eq!(lines(&said, "endpoints: "), [counted.as_str()]);
    let elsewhere = lines(&said, "10.1.");
    assert_eq!(elsewhere.len(), 16);
    assert_eq!(elsewhere[0], "10.1.0.0:8080 elsewhere, ready, is used");
    let more = format!("and {} more endpoints; --all lists them", most + 1 - 16);
    assert_eq!(lines(&said, "and "), [more.as_str()]);
    question.all = true;
    let said = try_explain(&cluster, &question).unwrap();
    assert_eq!(lines(&said, "10.1.").len(), 600);
    let more = format!("and {} more endpoints", most + 1 - 600);
    assert_eq!(lines(&said, "and "), [more.as_str()]);
}

#[test]
fn the_traffic_policy_local_drops_what_has_no_endpoint_here() {
    let elsewhere = vec![endpoint("10.0.1.2", "other")];
    let cluster = cluster(vec![balancer(true)], vec![slice("s", elsewhere)]);
    let said = explain(&cluster, destination("203.0.113.1", 80), None);
    let from = lines(&said, "from ");
    assert!(
        from[0].starts_with("from pods goes to one of 1 endpoints ("),
        "{said}"
    );
    assert!(
        from[1].starts_with("from this node goes to one of 1 endpoints ("),
        "{said}"
    );
    let dropped =
        "from outside is DROPPED: the traffic policy is Local and all endpoints are on other nodes";
    assert_eq!(from[2], dropped);
}

#[test]
fn source_ranges_are_shown_and_judge_a_client() {
    let mut limited = balancer(false);
    limited.source_ranges = texts(&["198.51.100.0/24"]);
    let cluster = cluster(vec![limited], vec![slice("s", both())]);
    let leaves_out = "is DROPPED: loadBalancerSourceRanges leaves it out";
    for (client, expected) in [
        ("198.51.100.7", "from outside goes to one of 2"),
        ("198.51.101.7", &format!("from outside {leaves_out}")),
        ("192.0.2.1", &format!("from this node {leaves_out}")),
    ] {
        let said = explain(&cluster, destination("203.0.113.1", 80), address(client));
        assert_eq!(lines(&said, expected).len(), 1, "{client} {said}");
        let only = "only for the sources 198.51.100.0-198.51.100.255; this node is not among them";
        assert_eq!(lines(&said, "only for "), [only]);
    }
}

#[test]
fn a_service_is_shown_with_all_its_frontends() {
    let cluster = cluster(vec![balancer(false)], vec![slice("s", both())]);
    let of_service = explain(&cluster, all_of("web"), Some(Client::Outside));
    let mut said = of_service.lines();
    for frontend in [
        "  cluster IP 10.96.0.1:80",
        "  load balancer's address 203.0.113.1:80",
        "  node port 30080",
    ] {
        assert!(said.any(|line| line == frontend), "{frontend} {of_service}");
    }
    let places = "note: node ports are at those addresses of this machine that are in: 192.0.2.1";
    assert!(lines(&of_service, places).len() == 1, "{of_service}");
    let at_port = Destination::NodePort(30080, 6);
    let said = explain(&cluster, at_port, None);
    assert_eq!(
        lines(&said, "node port ").len(),
        2,
        "the question and one frontend: {said}"
    );
    assert_eq!(lines(&said, "cluster IP ").len(), 0, "{said}");
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
    let said = explain(&cluster, to, None);
    let taken = "is taken (Service shop/web): it goes where that Service says";
    assert_eq!(lines(&said, "cluster IP "), ["cluster IP 10.96.0.2:80"]);
    let balancer = format!("load balancer's address 203.0.113.1:80 {taken}");
    assert_eq!(lines(&said, "load balancer's "), [balancer.as_str()]);
    let node_port = format!("node port 30080 {taken}");
    assert_eq!(lines(&said, "node port "), [node_port.as_str()]);
}

#[test]
fn ports_and_frontends_beyond_the_bounds_are_counted() {
    let mut many = service(&["10.96.0.1"]);
    many.ports = (0..40)
        .map(|n| port(&n.to_string(), "TCP", 1000 + n, 0))
        .collect();
    many.external_ips = (0..100).map(|n| format!("198.51.100.{n}")).collect();
    let mut cluster = cluster(vec![many], vec![slice("s", both())]);
    cluster.options.external_ips = true;
    let said = explain(&cluster, all_of("web"), Some(Client::Pod));
    assert_eq!(lines(&said, "port ").len(), 32, "{said}");
    assert_eq!(lines(&said, "and 8 more ports").len(), 1, "{said}");
    let frontends = lines(&said, "external IP ").len() + lines(&said, "cluster IP ").len();
    assert_eq!(frontends, 64);
    let all = lines(&said, "and ").into_iter();
    let more: Vec<&str> = all.filter(|line| line.ends_with(" frontends")).collect();
    assert_eq!(
        (more[0], more[1], more.len()),
        ("and 37 more frontends", "and 101 more frontends", 32)
    );
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
    let untouched = "left as it is, nothing of Services: ";
    for (to, becomes, says) in [
        (
            destination("10.96.0.1", 81),
            "REJECTED: ",
            "Service shop/web, which has no port 81/TCP; it has 80/TCP",
        ),
        (
            destination("10.96.0.9", 80),
            "DROPPED: ",
            "no Service has it",
        ),
        (destination("10.96.0.7", 80), untouched, "another proxy"),
        (all_of("foreign"), untouched, "another proxy"),
        (destination("203.0.113.1", 81), untouched, "no port 81/TCP"),
        (
            destination("192.0.2.2", 30080),
            untouched,
            "this machine does not have",
        ),
        (
            destination("192.0.2.1", 30081),
            untouched,
            "no Service has the node port",
        ),
        (
            destination("127.0.0.1", 30080),
            untouched,
            "node port of Service shop/web",
        ),
        (
            destination("8.8.8.8", 53),
            untouched,
            "in no network of cluster IPs",
        ),
    ] {
        let said = explain(&cluster, to.clone(), None);
        let [line] = lines(&said, becomes)[..] else {
            panic!("{to} {said}");
        };
        assert!(line.contains(says), "{to} {said}");
    }
}

#[test]
fn a_service_without_an_address_or_a_port_is_an_error_and_without_endpoints_a_note() {
    let mut named = service(&["10.96.0.1"]);
    named.ports = vec![port("web", "TCP", 80, 0)];
    let cluster = cluster(vec![named], vec![slice("s", both())]);
    let said = explain(&cluster, destination("10.96.0.1", 80), Some(Client::Pod));
    let rejected = "from pods is REJECTED: there is no usable endpoint anywhere";
    assert_eq!(lines(&said, "from "), [rejected]);
    let note = "note: port \"web\" (TCP) has no IPv4 endpoints: its EndpointSlices have the ports \"http\" (TCP), ";
    assert_eq!(lines(&said, note).len(), 1, "{said}");
    let ask = |name: &str, port| {
        let to = Destination::Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            port,
            protocol: None,
        };
        try_explain(&cluster, &asked(to)).unwrap_err().to_string()
    };
    assert!(ask("headless", None).contains("headless"));
    assert!(ask("web", Some(81)).contains("it has 80/TCP"));
    let unknown = crate::services::ServicePlanner::new(cluster.options);
    let error = fixture::explain(&unknown, &asked(all_of("web"))).unwrap_err();
    assert!(error.to_string().contains("EndpointSlices"), "{error}");
}
