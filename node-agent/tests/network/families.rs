//! IPv6 pods, and an IPv6 underlay: what is written reads back as it was meant.

use crate::node::{Agent, Node, eventually, ip, run};

/// The manifest of a node with addresses and pods of both families.
pub fn node(n: u32) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}}}\n\
         spec: {{podCIDRs: [10.0.{n}.0/24, 'fd00:0:0:{n}::/64']}}\n\
         status: {{addresses: [\
         {{type: InternalIP, address: 192.0.2.{n}}}, \
         {{type: InternalIP, address: '2001:db8::{n}'}}]}}\n"
    )
}

fn nothing_left_to_do(node: &Node, flags: &[&str], agent: Agent) {
    agent.ready();
    agent.passes();
    assert_eq!(agent.drift_repaired(), 0);
    agent.stop();
    let agent = node.start(flags);
    agent.ready();
    agent.passes();
    assert_eq!(agent.metric("tweed_kernel_changes_total"), 0);
}

#[test]
fn pods_of_both_families_over_either_underlay() {
    for (flags, local, remote) in [
        (&[][..], "local 192.0.2.1", "dst 192.0.2.2"),
        (
            &["--underlay-family", "ipv6"],
            "local 2001:db8::1",
            "dst 2001:db8::2",
        ),
    ] {
        let machine = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        machine.write_nodes(&[node(1), node(2)].concat());
        let agent = machine.start(flags);
        agent.ready();
        assert!(ip("-d link show tweed.1").contains(local));
        assert!(run("bridge", "fdb show dev tweed.1").contains(remote));
        assert!(ip("route show proto 116").contains("10.0.2.0/24 via 10.0.2.0"));
        let routes = ip("-6 route show proto 116");
        assert!(
            routes.contains("fd00:0:0:2::/64 via fd00:0:0:2:: dev tweed.1"),
            "{routes}"
        );
        assert!(routes.contains("unreachable fd00:0:0:1::/64"), "{routes}");
        let neighbours = ip("-6 neighbour show dev tweed.1 nud permanent");
        assert!(neighbours.contains("fd00:0:0:2:: lladdr"), "{neighbours}");
        assert!(ip("-6 address show dev tweed.1").contains("fd00:0:0:1::/128"));
        let forwarding = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding");
        assert_eq!(forwarding.unwrap().trim(), "1");
        nothing_left_to_do(&machine, flags, agent);
    }
}

#[test]
fn direct_routes_of_both_families() {
    let machine = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    machine.write_nodes(&[node(1), node(2)].concat());
    let flags = &["--backend", "direct"];
    let agent = machine.start(flags);
    agent.ready();
    let routes = ip("-6 route show proto 116");
    assert!(
        routes.contains("fd00:0:0:2::/64 via 2001:db8::2 dev eth0"),
        "{routes}"
    );
    nothing_left_to_do(&machine, flags, agent);
}

/// A node may have IPv6 switched off for all links to come.
#[test]
fn ipv6_comes_on_where_links_are_born_without_it() {
    let machine = Node::new();
    let off = |path: &str| std::fs::write(format!("/proc/sys/net/ipv6/conf/{path}"), "1").unwrap();
    off("default/disable_ipv6");
    machine.write_nodes(&[node(1), node(2)].concat());
    let agent = machine.start(&[]);
    agent.ready();
    let whole = || {
        let routes = ip("-6 route show proto 116");
        if routes.contains("fd00:0:0:2::/64 via fd00:0:0:2:: dev tweed.1") {
            Ok(())
        } else {
            Err(routes)
        }
    };
    whole().unwrap();
    agent.passes();
    let repaired = agent.drift_repaired();
    off("tweed.1/disable_ipv6");
    eventually(|| {
        if agent.drift_repaired() > repaired {
            whole()
        } else {
            Err("it was not noticed".to_owned())
        }
    });
    agent.ready();
}

/// Echoes of both families leave from the first address of the own range, which with direct
/// routes no link has.
#[test]
fn other_nodes_are_probed_from_the_own_range_of_either_family() {
    for backend in ["--backend=vxlan", "--backend=direct"] {
        let machine = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        run("nft", "add table inet seen");
        run(
            "nft",
            "add chain inet seen out { type filter hook output priority 0 ; }",
        );
        for echo in [
            "ip saddr 10.0.1.0 ip daddr 10.0.2.0 icmp type echo-request",
            "ip6 saddr fd00:0:0:1:: ip6 daddr fd00:0:0:2:: icmpv6 type echo-request",
        ] {
            run("nft", &format!("add rule inet seen out {echo} counter"));
        }
        machine.write_nodes(&[node(1), node(2)].concat());
        let agent = machine.start(&["--probe-peers=on", backend]);
        agent.ready();
        eventually(|| {
            let seen = run("nft", "list chain inet seen out");
            if seen.contains("counter") && !seen.contains("counter packets 0") {
                return Ok(());
            }
            Err(seen)
        });
        agent.stop();
    }
}
