//! `tweedctl where`, and `why` through a Service, asked of the real agent.

use std::time::{Duration, Instant};

use tweed_core::agent_socket::client::Connection;
use tweed_core::agent_socket::message::{self as plugin, Judge};
use tweed_core::attachment::{ContainerId, IfName, NetworkName};
use tweed_ctl::exit::Exit;
use tweed_ctl::verb::parse;
use tweed_ctl::verbs::where_to;

use super::{CLUSTER_IP, Scene, cidrs, endpoints, service};
use crate::node::{Node, eventually, tweedctl};

/// What `tweedctl` prints.
pub fn place(node: &Node, args: &[&str]) -> String {
    let (exit, text) = tweedctl(node, &[&["where"], args].concat());
    assert_eq!(exit, Exit::Fine, "{args:?}: {text}");
    text
}

/// Why it fails.
fn refusal(node: &Node, args: &[&str]) -> String {
    let (exit, text) = tweedctl(node, &[&["where"], args].concat());
    assert_eq!(exit, Exit::Undetermined, "{args:?}");
    text
}

#[test]
fn where_says_what_connections_meet() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[6, 7])]);
    let node = &scene.node;
    let agent = scene.start();
    scene.eventually_connects(true);
    for (args, expected) in [
        (
            &[CLUSTER_IP][..],
            &[
                "type NodePort (Service shop/web)",
                "from pods goes to one of 2 endpoints",
                "10.0.1.6:80 on this node, ready, is used (Node n1)\n",
                "the kernel is as planned: ",
            ][..],
        ),
        (
            &["192.0.2.1:30080", "--from", "outside"],
            &["node port 30080", "masqueraded", "as planned: "],
        ),
        (&["10.96.0.10:81"], &["REJECTED: ", "it has 8080/TCP"]),
        (&["10.96.0.77:80"], &["DROPPED: ", "no Service has it"]),
        (
            &["10.0.1.6:30080"],
            &["left as it is", "this machine does not have"],
        ),
    ] {
        let shown = place(node, args);
        for text in expected {
            assert!(shown.contains(text), "{args:?}: {text}\n{shown}");
        }
    }
    let printed = place(node, &["shop/web", "--from", "10.0.1.6", "-o", "json"]);
    let report: where_to::Report = parse("where", printed.as_bytes()).unwrap();
    let steps = report.steps;
    let is_from = |from: &str| steps.iter().any(|one| one.what.starts_with(from));
    assert!(is_from("from pods goes to one of 2"), "{steps:?}");
    let itself = "keeps its address, but for a connection to itself";
    assert!(steps.iter().any(|one| one.what.ends_with(itself)));
    assert!(is_from("the kernel is as planned"), "{steps:?}");
    // The VXLAN device's address, which no Node lists, is the node's own.
    let shown = place(node, &["shop/web", "--from", "10.0.1.0"]);
    assert!(shown.contains("from this node goes to"), "{shown}");
    // Through the Service: first where it leads, then what the policies of its pods say.
    let asked = ["why", "10.0.1.5", "svc/shop/web:8080", "--exit-code"];
    let (exit, shown) = tweedctl(node, &asked);
    assert_eq!(exit, Exit::Fine, "{shown}");
    let at = |text: &str| {
        shown
            .find(text)
            .unwrap_or_else(|| panic!("{text}\n{shown}"))
    };
    let goes_to = at("goes to one of 2 endpoints");
    for endpoint in ["→ 10.0.1.6, TCP port 80", "→ 10.0.1.7, TCP port 80"] {
        assert!(goes_to < at(endpoint), "{shown}");
    }
    assert!(shown.contains("no policy exists"), "{shown}");
    let error = refusal(node, &["shop/nothing"]);
    assert!(error.contains("headless"), "{error}");

    scene.apply(&[cidrs(), service(), endpoints(&[])]);
    eventually(|| match place(node, &[CLUSTER_IP, "--from", "pod"]) {
        shown if shown.contains("from pods is REJECTED: there is no usable endpoint") => Ok(()),
        shown => Err(shown),
    });
    assert!(!scene.connects(CLUSTER_IP));
    let asked = ["why", "10.0.1.5", "svc/shop/web:8080", "--exit-code"];
    let (exit, shown) = tweedctl(node, &asked);
    assert_eq!(exit, Exit::Denied, "{shown}");
    agent.ready();
}

#[test]
fn without_services_where_says_what_to_do() {
    let node = Node::new();
    std::fs::create_dir_all(node.path("run")).unwrap();
    node.list([1]);
    let agent = node.start(&[]);
    agent.serves();
    let error = refusal(&node, &[CLUSTER_IP]);
    assert!(error.contains("set --services on"), "{error}");
}

/// The socket is there for questions about Services, and a plugin that asks on it is
/// not kept waiting.
#[test]
fn without_policies_an_add_is_told_that_none_are_in_force() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[6])]);
    let agent = scene.node.start(&["--services", "on", "--policy", "off"]);
    agent.ready();
    let judge = plugin::Request::Judge(Judge {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new("client").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        pod: None,
        addresses: vec!["10.0.1.5".parse().unwrap()],
        wait_ms: 60_000,
    });
    let connection = Connection::ask(&scene.node.path("run"), &judge).unwrap();
    let answer: plugin::Answer = connection
        .answer(Instant::now() + Duration::from_secs(60))
        .unwrap();
    assert_eq!(answer, plugin::Answer::NotInForce {});
    assert!(place(&scene.node, &["shop/web"]).contains("the kernel is as planned"));
}
