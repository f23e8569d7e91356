//! Nodes come, go and change, and so does the machine under them.

use std::time::Duration;

use tokio::sync::mpsc;
use tweed_agent::agent::Ending;
use tweed_agent::sources::Sources;
use tweed_core::object::Event;
use tweed_core::problem::ProblemKind;
use tweed_watch::{Kind, LastContact, Scope, Source};

use crate::node::{Node, eventually, ip, picture, run};

fn routes_are(expected: &[&str]) {
    eventually(|| {
        let routes = ip("route show proto 116 dev tweed.1");
        let mut found: Vec<&str> = routes
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        found.sort_unstable();
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?} instead of {expected:?}"))
        }
    });
}

#[test]
fn nothing_is_removed_on_the_word_of_a_list_without_the_own_node() {
    let node = Node::new();
    node.list(1..=3);
    let agent = node.start(&[]);
    agent.ready();
    let whole = picture();
    node.list(2..=2);
    agent.complains("own-node-missing");
    agent.passes();
    assert_eq!(picture(), whole);
    node.write_nodes("not: [a node");
    agent.complains("nodes-unreadable");
    agent.passes();
    assert_eq!(picture(), whole);
    node.list(1..=2);
    agent.ready();
    routes_are(&["10.0.2.0/24"]);
}

#[test]
fn what_went_while_the_agent_was_down_goes_at_its_start() {
    let node = Node::new();
    node.list(1..=4);
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    node.list([1, 3]);
    let agent = node.start(&[]);
    agent.ready();
    routes_are(&["10.0.3.0/24"]);
    assert_eq!(run("bridge", "fdb show dev tweed.1").lines().count(), 1);
    assert_eq!(
        ip("neighbour show dev tweed.1 nud permanent")
            .lines()
            .count(),
        1
    );
}

#[test]
fn cidrs_swapped_between_two_nodes_end_as_the_list_says() {
    let node = Node::new();
    let list = |second: u32, third: u32| {
        let one = |name: u32, cidr: u32| {
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{name}}}\n\
                 spec: {{podCIDRs: [10.0.{cidr}.0/24]}}\n\
                 status: {{addresses: [{{type: InternalIP, address: 192.0.2.{name}}}]}}\n"
            )
        };
        node.write_nodes(&[one(1, 1), one(2, second), one(3, third)].concat());
    };
    let neighbour = |last: u32| ip(&format!("neighbour show 10.0.{last}.0 dev tweed.1"));
    list(2, 3);
    let agent = node.start(&[]);
    agent.ready();
    let (second, third) = (neighbour(2), neighbour(3));
    list(3, 2);
    eventually(|| match neighbour(3) {
        now if now == second.replace("10.0.2.0", "10.0.3.0") => Ok(()),
        now => Err(now),
    });
    assert_eq!(neighbour(2), third.replace("10.0.3.0", "10.0.2.0"));
    agent.ready();
}

#[test]
fn the_underlay_goes_down_and_comes_back() {
    let node = Node::new();
    node.list(1..=3);
    let agent = node.start(&[]);
    agent.ready();
    let whole = picture();
    ip("link set eth0 down");
    agent.passes();
    ip("link set eth0 up");
    agent.ready();
    assert_eq!(picture(), whole);
}

/// The plan is held, and the default route leads elsewhere.
#[test]
fn direct_routes_over_a_lost_link_do_not_give_way_to_the_default_route() {
    let node = Node::new();
    ip("link add eth1 type veth peer name wire1");
    ip("link set eth1 up");
    ip("address add 198.51.100.1/24 dev eth1");
    ip("route add default via 198.51.100.9");
    node.list(1..=3);
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
    let direct = ip("route show proto 116");
    ip("address delete 192.0.2.1/24 dev eth0");
    let said = agent.complains("gateway-not-on-link");
    assert!(
        said.contains("eth0") && said.contains("2 over IPv4"),
        "{said}"
    );
    let problems = agent.problems();
    let lines = problems.iter().filter(|line| line.starts_with("gateway-"));
    assert_eq!(lines.count(), 1, "{problems:?}");
    for pods in ["10.0.2.0/24", "10.0.3.0/24"] {
        let routes = ip(&format!("route show {pods}"));
        assert!(
            routes.starts_with(&format!("unreachable {pods}")),
            "{routes}"
        );
    }
    ip("address add 192.0.2.1/24 dev eth0");
    agent.ready();
    assert_eq!(ip("route show proto 116"), direct);
}

#[test]
fn another_underlay_address_makes_another_device_with_all_that_is_on_it() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    node.moves_to("192.0.2.77");
    eventually(|| match ip("-d -o link show type vxlan") {
        link if link.contains("local 192.0.2.77") => Ok(()),
        link => Err(link),
    });
    routes_are(&["10.0.2.0/24"]);
    agent.ready();
}

#[test]
fn the_underlay_s_mtu_becomes_the_device_s() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    ip("link set eth0 mtu 1400");
    eventually(|| match ip("link show tweed.1") {
        link if link.contains("mtu 1350") => Ok(()),
        link => Err(link),
    });
    agent.ready();
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1350");
}

#[test]
fn direct_routes_need_no_device() {
    let node = Node::new();
    node.list(1..=3);
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
    let routes = ip("route show proto 116");
    assert!(
        routes.contains("10.0.2.0/24 via 192.0.2.2 dev eth0"),
        "{routes}"
    );
    assert_eq!(ip("link show type vxlan"), "");
    ip("link set eth0 down");
    agent.passes();
    ip("link set eth0 up");
    eventually(|| match ip("route show 10.0.3.0/24") {
        route if route.contains("via 192.0.2.3") => Ok(()),
        route => Err(route),
    });
    agent.ready();
    agent.stop();
    let agent = node.start(&[]);
    agent.ready();
    routes_are(&["10.0.2.0/24", "10.0.3.0/24"]);
    agent.stop();
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
    assert_eq!(
        ip("link show type vxlan"),
        "",
        "the device of the other backend"
    );
}

/// Sources with an error in them.
struct Panics;

impl Sources for Panics {
    fn source<K: Kind>(&self, _scope: Scope) -> impl Source<K> {
        Self
    }
}

impl<K: Kind> Source<K> for Panics {
    fn last_contact(&self) -> LastContact {
        LastContact::default()
    }

    async fn run(self, _events: mpsc::Sender<Event<K>>) {
        panic!("out of luck");
    }
}

/// A server that accepts the connection and never answers.
struct Silent;

impl Sources for Silent {
    fn source<K: Kind>(&self, _scope: Scope) -> impl Source<K> {
        Self
    }
}

impl<K: Kind> Source<K> for Silent {
    fn last_contact(&self) -> LastContact {
        LastContact::default()
    }

    async fn run(self, _events: mpsc::Sender<Event<K>>) {
        std::future::pending().await
    }
}

#[test]
fn once_ends_with_what_it_waits_for_where_it_cannot_converge() {
    match Node::new().once_within(Duration::from_secs(5), Silent) {
        Ending::NotConverged(problems) => {
            let kinds: Vec<_> = problems.iter().map(|problem| problem.kind).collect();
            assert!(kinds.contains(&ProblemKind::NodesNotListed), "{kinds:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// An agent that hears of no Node any more must not say ready for ever: it ends, so
/// that it is started again.
#[test]
fn an_agent_whose_source_panics_ends_with_an_error() {
    let error = Node::new().run_over(Panics).unwrap_err().to_string();
    assert!(error.contains("the source of Nodes"), "{error}");
    assert!(error.contains("out of luck"), "{error}");
}

/// A node whose agent was replaced while the list cannot be read.
#[test]
fn what_differs_is_repaired_without_a_list_from_the_nodes_of_the_run_before() {
    let node = Node::new();
    node.list(1..=3);
    let agent = node.start(&[]);
    agent.ready();
    node.list(1..=4);
    routes_are(&["10.0.2.0/24", "10.0.3.0/24", "10.0.4.0/24"]);
    agent.stop();
    let whole = picture();
    std::fs::remove_file(node.path("nodes.yaml")).unwrap();
    ip("route del 10.0.2.0/24");
    ip("link del tweed.1");
    let agent = node.start(&[]);
    agent.complains("nodes-unreadable");
    routes_are(&["10.0.2.0/24", "10.0.3.0/24", "10.0.4.0/24"]);
    // The first list replaces what was kept, and removes what is not in it.
    node.list(1..=2);
    agent.ready();
    routes_are(&["10.0.2.0/24"]);
    node.list(1..=4);
    routes_are(&["10.0.2.0/24", "10.0.3.0/24", "10.0.4.0/24"]);
    agent.passes();
    assert_eq!(picture(), whole);
}
