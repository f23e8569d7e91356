//! What stands in the way: named with its cure, left alone, and mended without
//! a hand when it goes.

use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command};

use tweed_agent::agent::Ending;
use tweed_core::problem::ProblemKind;

use crate::families;
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

/// The lock of the run folder is another one.
#[test]
fn another_agent_with_another_run_folder_is_named_while_it_runs() {
    let node = Node::new();
    node.list(1..=2);
    let first = node.start(&[]);
    first.ready();
    let folder = node.path("other-run").display().to_string();
    let second = node.start(&["--run-dir", &folder]);
    second.complains("other-agent");
    first.stop();
    second.resolves("other-agent");
    second.stop();
}

#[test]
fn a_link_with_our_name_as_an_altname_is_named() {
    let node = Node::new();
    ip("link property add dev eth0 altname tweed.1");
    node.list(1..=2);
    let agent = node.start(&[]);
    let problem = agent.complains("vxlan-name-taken");
    assert!(
        problem.contains("property del dev eth0 altname tweed.1"),
        "{problem}"
    );
    ip("link property del dev eth0 altname tweed.1");
    agent.ready();
}

/// Routing daemons set `protodown` on VXLAN devices.
#[test]
fn a_device_gets_its_carrier_back_and_whoever_goes_on_taking_it_is_named() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let is_down = || ip("-d link show tweed.1").contains("protodown on");
    let comes_back = || {
        eventually(|| {
            if is_down() {
                Err("the device has no carrier".to_owned())
            } else {
                Ok(())
            }
        });
    };
    for _ in 0..3 {
        ip("link set tweed.1 protodown_reason 3 on");
        ip("link set tweed.1 protodown on");
        comes_back();
    }
    ip("link set tweed.1 protodown on");
    let problem = agent.complains("vxlan-no-carrier");
    assert!(problem.contains("protodown off") && is_down(), "{problem}");
    ip("link set tweed.1 protodown off");
    agent.ready();
    ip("link set tweed.1 protodown on");
    comes_back();
}

#[test]
fn a_device_whose_packets_may_not_be_cut_is_made_again() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    ip("link set tweed.1 type vxlan df set");
    eventually(|| match ip("-d link show") {
        links if links.contains("df set") || !links.contains("tweed.1") => Err(links),
        _ => Ok(()),
    });
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
    // It neither hides what happens to other routes, nor is it drift itself.
    agent.passes();
    assert_eq!(agent.drift_repaired(), 0);
    ip("route delete 10.0.3.0/24");
    eventually(|| match agent.drift_repaired() {
        1 => Ok(()),
        other => Err(format!("{other} objects repaired")),
    });
    ip("route delete 10.0.2.0/24 via 192.0.2.9");
    eventually(|| match ip("route show 10.0.2.0/24") {
        route if route.contains("tweed.1") => Ok(()),
        route => Err(route),
    });
    agent.ready();
    assert_eq!(agent.drift_repaired(), 1);
    assert!(ip("route show 10.88.0.0/24").contains("via 192.0.2.9"));

    // A replacement by hand makes it somebody else's.
    ip("route replace 10.0.3.0/24 via 192.0.2.9");
    agent.complains("route-taken");
    assert!(ip("route show 10.0.3.0/24").contains("via 192.0.2.9"));
}

/// One peer's object harms nobody else: what no list of this machine's addresses
/// shows, only the kernel's answer does.
#[test]
fn a_peer_that_the_kernel_refuses_is_a_warning_on_its_node() {
    for (backend, obstacle) in [
        ("vxlan", "local 10.0.2.0/32 dev lo"),
        ("direct", "broadcast 192.0.2.2/32 dev eth0"),
    ] {
        let node = Node::new();
        ip(&format!("route add {obstacle} table local"));
        node.list(1..=3);
        let agent = node.start(&["--backend", backend]);
        let problem = agent.complains("node-not-reached");
        assert!(problem.contains("Node n2"), "{backend}: {problem}");
        agent.serves();
        assert_eq!(agent.problems(), [problem], "{backend}");
        assert!(ip("route show 10.0.3.0/24").contains("via"), "{backend}");
        node.publishes("run/ready", "n1");
        ip(&format!("route delete {obstacle} table local"));
        agent.ready();
        assert!(ip("route show 10.0.2.0/24").contains("via"), "{backend}");
    }
}

/// Of IPv6 the old route has to go first.
#[test]
fn a_route_whose_replacement_is_refused_stays() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    // No gateway may itself be behind one, or be a broadcast address.
    ip("-6 route add 2001:db8::2 via 2001:db8::9");
    ip("route add broadcast 192.0.2.2 dev eth0 table local");
    let agent = node.start(&["--backend", "direct"]);
    agent.complains("node-not-reached");
    agent.passes();
    let routes = ip("-6 route show fd00:0:0:2::/64");
    assert!(routes.contains("dev tweed.1"), "{routes}");
    let routes = ip("route show 10.0.2.0/24");
    assert!(routes.contains("dev tweed.1"), "{routes}");
    ip("-6 route delete 2001:db8::2 via 2001:db8::9");
    ip("route delete broadcast 192.0.2.2 dev eth0 table local");
    agent.ready();
    let routes = ip("-6 route show fd00:0:0:2::/64");
    assert!(routes.contains("via 2001:db8::2 dev eth0"), "{routes}");
}

#[test]
fn a_foreign_route_beside_ours_is_named_and_outlives_our_replacement() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    for place in ["prepend", "append"] {
        ip(&format!("route {place} 10.0.2.0/24 via 192.0.2.9"));
        let problem = agent.complains("route-taken");
        assert!(problem.contains("10.0.2.0/24 via 192.0.2.9"), "{problem}");
        ip("route delete 10.0.2.0/24 via 192.0.2.9");
        agent.ready();
    }
    ip("route prepend 10.0.2.0/24 via 192.0.2.9");
    agent.complains("route-taken");
    agent.stop();
    let agent = node.start(&["--backend", "direct"]);
    agent.complains("route-taken");
    agent.passes();
    let routes = ip("route show 10.0.2.0/24");
    assert!(routes.contains("via 192.0.2.9 dev eth0 \n"), "{routes}");
    assert!(
        routes.contains("via 192.0.2.2 dev eth0 proto 116"),
        "{routes}"
    );
    assert!(!routes.contains("tweed.1"), "{routes}");
    ip("route delete 10.0.2.0/24 via 192.0.2.9");
    agent.ready();
}

/// As a network plugin before tweed may have left one: these pods are not reached.
#[test]
fn a_longer_foreign_route_inside_a_pod_cidr_is_named() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    ip("route add blackhole 10.0.2.0/25 proto 80");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    let problem = agent.complains("route-taken");
    assert!(problem.contains("10.0.2.0/24"), "{problem}");
    assert!(problem.contains("blackhole 10.0.2.0/25"), "{problem}");
    ip("route del blackhole 10.0.2.0/25");
    agent.resolves("route-taken");
    for route in [
        "10.0.2.64/26 via 192.0.2.9",
        "10.0.1.64/26 via 192.0.2.9",
        "10.0.2.7/32 via 192.0.2.9",
    ] {
        ip(&format!("route add {route} proto 80"));
        assert!(agent.complains("route-taken").contains(route));
        ip(&format!("route del {route}"));
        agent.resolves("route-taken");
    }
    ip("-6 route add fd00:0:0:2:8000::/65 via 2001:db8::9");
    let problem = agent.complains("route-taken");
    assert!(problem.contains("fd00:0:0:2:8000::/65"), "{problem}");
    ip("-6 route del fd00:0:0:2:8000::/65");
    agent.resolves("route-taken");
    // The bridge of a plugin that tweed takes over from has pods of this node.
    ip("link add cni0 type bridge");
    ip("link set cni0 up");
    ip("route add 10.0.1.128/25 dev cni0");
    agent.ready();
}

/// IPv6 makes a route that is appended a next hop of the one that is there, and shows
/// it with the protocol of the first.
#[test]
fn a_next_hop_that_is_appended_to_ours_is_removed_only_if_it_is_ours() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    let routes = || ip("-6 route show fd00:0:0:2::/64");
    ip("-6 route append fd00:0:0:2::/64 via 2001:db8::8 dev eth0 proto 116");
    eventually(|| match routes() {
        routes if routes.contains("2001:db8::8") => Err(routes),
        _ => Ok(()),
    });
    agent.ready();
    ip("-6 route append fd00:0:0:2::/64 via 2001:db8::9 dev eth0");
    let problem = agent.complains("route-taken");
    assert!(problem.contains("via 2001:db8::9"), "{problem}");
    agent.passes();
    assert!(routes().contains("2001:db8::9"), "{}", routes());
    assert!(routes().contains("dev tweed.1"), "{}", routes());
    ip("-6 route delete fd00:0:0:2::/64 via 2001:db8::9 dev eth0");
    agent.ready();
    ip("-6 route add fd00:0:0:2::/64 via 2001:db8::9 dev eth0 metric 5");
    agent.complains("route-taken");
    ip("-6 route delete fd00:0:0:2::/64 metric 5");
    agent.ready();
}

/// The kernel shows both next hops with the protocol of the one that was there first:
/// after the replacement that is the other's, so that tweed takes both for its. Packets
/// take both, as before.
#[test]
fn an_ipv6_route_with_a_next_hop_of_somebody_else_beside_it_is_replaced() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    let routes = || ip("-6 route show fd00:0:0:2::/64");
    let hop = "fd00:0:0:2::/64 via 2001:db8::9 dev eth0";
    ip(&format!("-6 route append {hop}"));
    agent.complains("route-taken");
    agent.stop();
    let agent = node.start(&["--backend", "direct"]);
    agent.complains("route-taken");
    agent.passes();
    for hop in ["via 2001:db8::2 dev eth0", "via 2001:db8::9 dev eth0"] {
        assert!(routes().contains(hop), "{}", routes());
    }
    assert!(!routes().contains("tweed.1"), "{}", routes());
    ip(&format!("-6 route delete {hop}"));
    agent.ready();
    assert!(
        routes().contains("via 2001:db8::2 dev eth0 proto 116"),
        "{}",
        routes()
    );
    agent.passes();
    assert_eq!(routes().lines().count(), 1, "{}", routes());
}

/// It is in no list of links here, and keeps the VNI all the same.
#[test]
fn a_device_that_was_moved_to_another_namespace_gets_a_cure_that_works() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let away = Process(
        Command::new("unshare")
            .args(["--net", "sleep", "600"])
            .spawn()
            .unwrap(),
    );
    let pid = away.0.id();
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    eventually(|| match namespace(&pid.to_string()) {
        Some(other) if namespace("thread-self") != Some(other.clone()) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    ip(&format!("link set tweed.1 netns {pid}"));
    let problem = agent.complains("vxlan-vni-taken");
    assert!(problem.contains("another network namespace"), "{problem}");
    assert!(problem.contains("nsenter"), "{problem}");
    drop(away);
    agent.ready();
}

/// A process, killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
fn a_write_that_is_refused_keeps_no_device_of_an_earlier_vni() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    ip("route add 10.0.3.0/24 via 192.0.2.9");
    node.list(1..=3);
    let agent = node.start(&["--vni", "7"]);
    agent.complains("route-taken");
    assert!(ip("route show 10.0.2.0/24").contains("dev tweed.7"));
    assert!(!succeeds("ip", "link show tweed.1"));
    agent.passes();
    agent.complains("route-taken");
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
