//! What stands in the way: named with its cure, left alone, and mended without
//! a hand when it goes.

use std::net::UdpSocket;

use tweed_agent::agent::Ending;
use tweed_core::problem::ProblemKind;

use crate::node::{Node, eventually, ip, succeeds};

#[test]
fn a_vni_that_another_device_has_is_named_and_taken_when_free() {
    let node = Node::new();
    ip("link add flannel.1 type vxlan id 1 local 192.0.2.1 dstport 8472 nolearning");
    node.list(1..=2);
    let agent = node.start(&[]);
    let problem = agent.complains("vxlan-vni-taken");
    assert!(problem.contains("ip link delete flannel.1"), "{problem}");
    assert!(!node.path("run/ready").exists());
    assert!(succeeds("ip", "link show flannel.1"));
    ip("link delete flannel.1");
    agent.ready();
    node.publishes("run/ready", "n1");
}

#[test]
fn a_port_that_a_program_or_an_external_device_holds_is_named_and_taken_when_free() {
    let node = Node::new();
    let socket = UdpSocket::bind("0.0.0.0:8472").unwrap();
    node.list(1..=2);
    let agent = node.start(&[]);
    let problem = agent.complains("vxlan-port-taken");
    assert!(problem.contains("ss -ulpn"), "{problem}");
    drop(socket);
    agent.ready();

    ip("link set tweed.1 down");
    agent.ready();
    agent.stop();
    ip("link delete tweed.1");
    ip("link add other type vxlan external dstport 8472");
    ip("link set other up");
    let agent = node.start(&[]);
    let problem = agent.complains("vxlan-");
    assert!(problem.contains("ip link delete other"), "{problem}");
    ip("link delete other");
    agent.ready();
}

#[test]
fn a_device_with_our_name_that_is_not_vxlan_is_left_alone() {
    let node = Node::new();
    ip("link add tweed.1 type veth peer name end");
    node.list(1..=2);
    let agent = node.start(&[]);
    let problem = agent.complains("vxlan-name-taken");
    assert!(problem.contains("ip link delete tweed.1"), "{problem}");
    assert!(ip("-d link show tweed.1").contains("veth"));
    ip("link delete tweed.1");
    agent.ready();
    assert!(ip("-d link show tweed.1").contains("vxlan"));
}

#[test]
fn a_foreign_route_in_the_way_is_named_kept_and_followed_by_ours() {
    let node = Node::new();
    ip("route add 10.0.2.0/24 via 192.0.2.9");
    ip("route add 10.88.0.0/24 via 192.0.2.9 proto 3");
    node.list(1..=3);
    let agent = node.start(&[]);
    let problem = agent.complains("route-taken");
    assert!(problem.contains("10.0.2.0/24"), "{problem}");
    agent.passes();
    assert!(ip("route show 10.0.2.0/24").contains("via 192.0.2.9"));
    assert!(ip("route show 10.0.3.0/24").contains("tweed.1"));
    ip("route delete 10.0.2.0/24 via 192.0.2.9");
    eventually(|| match ip("route show 10.0.2.0/24") {
        route if route.contains("tweed.1") => Ok(()),
        route => Err(route),
    });
    agent.ready();
    assert!(ip("route show 10.88.0.0/24").contains("via 192.0.2.9"));

    // A replacement by hand makes it somebody else's.
    ip("route replace 10.0.3.0/24 via 192.0.2.9");
    agent.complains("route-taken");
    assert!(ip("route show 10.0.3.0/24").contains("via 192.0.2.9"));
}

#[test]
fn another_vni_replaces_the_device_of_the_earlier_one() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    let agent = node.start(&["--vni", "7"]);
    agent.ready();
    assert!(ip("route show 10.0.2.0/24").contains("dev tweed.7"));
    assert!(!succeeds("ip", "link show tweed.1"));
    agent.stop();
    let agent = node.start(&["--vni", "7", "--vxlan-port", "4789"]);
    agent.ready();
    assert!(ip("-d link show tweed.7").contains("dstport 4789"));
    assert!(ip("route show 10.0.2.0/24").contains("dev tweed.7"));
}

#[test]
fn once_converges_and_says_so_or_says_what_is_in_the_way() {
    let node = Node::new();
    ip("link add flannel.1 type vxlan id 1 local 192.0.2.1 dstport 8472 nolearning");
    node.list(1..=2);
    match node.start(&["--once"]).ending() {
        Ending::NotConverged(problems) => {
            assert!(
                problems
                    .iter()
                    .any(|p| p.kind == ProblemKind::VxlanVniTaken)
            );
        }
        other => panic!("{other:?}"),
    }
    ip("link delete flannel.1");
    assert_eq!(node.start(&["--once"]).ending(), Ending::Converged);
    assert!(ip("route show 10.0.2.0/24").contains("tweed.1"));
    assert!(node.path("net.d/10-tweed.conflist").exists());
}
