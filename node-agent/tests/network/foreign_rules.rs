//! Rules of others that lead packets of pods elsewhere, rewrite or drop them: named with a
//! cure, which works when it is typed.

use crate::families;
use crate::node::{Node, ip, run};

/// The command of a problem's cure, which stands last between backquotes.
fn type_the_cure(problem: &str) {
    let command = problem.rsplit('`').nth(1).unwrap();
    let (program, arguments) = command.split_once(' ').unwrap();
    run(program, arguments);
}

#[test]
fn a_routing_rule_that_hides_the_routes_to_pods_is_named_until_another_comes_before_it() {
    for (rule, table) in [
        ("from all", 52),
        ("from 192.0.2.1", 101),
        ("not from 192.0.2.99", 52),
        // As wg-quick has it.
        ("not from all fwmark 51820", 52),
        // What comes from pods, or from those of other nodes.
        ("from 10.0.0.0/16", 77),
        ("from all iif tweed.1", 78),
    ] {
        let node = Node::new();
        ip(&format!("route add 10.0.0.0/8 dev eth0 table {table}"));
        ip(&format!("rule add {rule} lookup {table} priority 5270"));
        node.list(1..=2);
        let flags = ["--cluster-cidr", "10.0.0.0/16"];
        let agent = node.start(&flags);
        let problem = agent.complains("route-shadowed");
        let named = format!("`5270: {}", rule.trim_end_matches(" fwmark 51820"));
        assert!(problem.contains(&named), "{problem}");
        assert!(problem.contains("10.0.0.0/16"), "{problem}");
        node.publishes("run/ready", "n1");
        type_the_cure(&problem);
        // There is no notification; after a failure the agent looks at everything again.
        ip("route replace 10.0.2.0/24 via 192.0.2.9");
        agent.complains("route-taken");
        ip("route delete 10.0.2.0/24 via 192.0.2.9");
        agent.ready();
        agent.passes();
        agent.ready();
    }
}

/// The packets of pods of other nodes come in by the uplink there.
#[test]
fn a_rule_for_the_uplink_is_named_with_direct_routes() {
    for (program, default) in [("", "192.0.2.254"), ("-6 ", "2001:db8::fe")] {
        let node = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        ip(&format!(
            "{program}route add default via {default} table 78"
        ));
        ip(&format!(
            "{program}rule add iif eth0 lookup 78 priority 100"
        ));
        node.write_nodes(&[families::node(1), families::node(2)].concat());
        let agent = node.start(&["--backend", "direct"]);
        let problem = agent.complains("route-shadowed");
        assert!(
            problem.contains("`100: from all iif eth0 lookup 78`"),
            "{problem}"
        );
        agent.serves();
    }
}

/// As a routing daemon has them in a table of its own.
#[test]
fn a_foreign_route_in_the_table_of_a_rule_is_named_until_another_rule_comes_before_it() {
    for (program, route) in [
        ("", "10.0.2.64/26 via 192.0.2.9"),
        ("-6 ", "fd00:0:0:2:8000::/65 via 2001:db8::9"),
    ] {
        let node = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        node.write_nodes(&[families::node(1), families::node(2)].concat());
        ip(&format!("{program}route add {route} table 77"));
        ip(&format!("{program}rule add lookup 77 priority 100"));
        let agent = node.start(&[]);
        let problem = agent.complains("route-taken");
        assert!(problem.contains(route), "{problem}");
        assert!(problem.contains("table 77"), "{problem}");
        agent.serves();
        type_the_cure(&problem);
        agent.ready();
    }
}

#[test]
fn a_rule_that_masquerades_packets_between_pods_is_named_until_it_lets_them_be() {
    for (rule, flags) in [
        ("-j MASQUERADE", &[][..]),
        ("-o eth0 -j MASQUERADE", &["--backend", "direct"]),
    ] {
        for program in ["iptables-nft", "ip6tables-legacy"] {
            let node = Node::new();
            ip("address add 2001:db8::1/64 dev eth0 nodad");
            run(program, &format!("-t nat -A POSTROUTING {rule}"));
            node.write_nodes(&[families::node(1), families::node(2)].concat());
            let ranges = "10.0.0.0/16,fd00::/16";
            let agent = node.start(&[flags, &["--cluster-cidr", ranges]].concat());
            let problem = agent.complains("pods-masqueraded");
            agent.serves();
            type_the_cure(&problem);
            agent.ready();
        }
    }
    let node = Node::new();
    run(
        "iptables-nft",
        "-t nat -A POSTROUTING -o eth0 -j MASQUERADE",
    );
    node.list(1..=2);
    node.start(&[]).ready();
}

#[test]
fn a_firewall_that_drops_vxlan_is_named_until_it_lets_it_in() {
    let node = Node::new();
    run("iptables-nft", "-P INPUT DROP");
    run(
        "iptables-nft",
        "-A INPUT -m conntrack --ctstate NEW -p udp --dport 8472 -j ACCEPT",
    );
    node.list(1..=2);
    let agent = node.start(&[]);
    let problem = agent.complains("inbound-drop");
    type_the_cure(problem.trim_end_matches(", and after each reboot"));
    agent.ready();
    agent.stop();
    // Direct routes need no VXLAN.
    run("iptables-nft", "-F INPUT");
    let agent = node.start(&["--backend", "direct"]);
    agent.ready();
}
