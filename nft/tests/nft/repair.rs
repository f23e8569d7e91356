//! What others change is put back; what is right is left alone; other tables
//! are never touched.

use std::path::Path;
use std::time::{Duration, Instant};

use tweed_nft::Error;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::Ruleset;

use crate::lab::Host;
use crate::node::{NOTHING, Node, cluster};
use crate::tables::Tables;

/// The command that adds an element for all keys to a set of `inet tweed`; none on a kernel
/// that has no such elements, as Linux until 5.12.
pub fn catch_all(host: &Host, set: &str) -> Option<String> {
    let command = format!("add element inet tweed {set} {{ * }}");
    let refusal = host.sh(format!("nft -c '{command}' 2>&1 || :"));
    refusal.is_empty().then_some(command)
}

#[test]
fn the_second_pass_and_a_restart_send_nothing() {
    let node = Node::new();
    let ruleset = cluster(5);
    let first = node.reconcile(&ruleset);
    assert_eq!((first.repaired, first.messages), (0, 1));
    assert!(!node.due(), "the own transaction is no news");
    let handles = node.handles();
    assert_eq!(node.reconcile(&ruleset), NOTHING);
    node.restart();
    assert_eq!(node.reconcile(&ruleset), NOTHING);
    assert_eq!(node.handles(), handles);
}

#[test]
fn a_changed_config_replaces_the_rules_and_keeps_the_elements() {
    let node = Node::new();
    let mut ruleset = cluster(5);
    node.reconcile(&ruleset);
    ruleset.masquerade = Some(Masquerade::Off);
    let outcome = node.reconcile(&ruleset);
    assert_eq!(
        (outcome.changed, outcome.repaired, outcome.messages),
        (1, 0, 1)
    );
    let listing = node.listing();
    assert!(!listing.contains("random"), "{listing}");
    assert!(listing.contains("10.0.5.0/24"), "{listing}");
    assert_eq!(node.reconcile(&ruleset), NOTHING);
}

/// Each way of changing the table by hand: it is noticed, put back in one pass,
/// and then there is nothing more to do.
#[test]
fn what_is_changed_by_hand_is_put_back() {
    const BYSTANDERS: &str = r#"
        table ip nat {
            comment "somebody's"
            set tweed { type ipv4_addr; elements = { 10.0.0.1 }; }
            chain tweed {
                type nat hook postrouting priority 99; policy accept;
                counter packets 7 bytes 9 comment "x"
            }
        }
        table ip tweed {
            chain prerouting_raw {
                ip saddr 10.0.0.1 drop
            }
        }
        table inet other {
            map m {
                type ipv4_addr : verdict
                elements = { 10.0.0.1 : drop }
            }
        }
    "#;
    let node = Node::new();
    let ruleset = cluster(5);
    node.host.sh(format!("nft -f - <<'E'\n{BYSTANDERS}\nE"));
    let bystanders =
        "nft -a list table ip nat; nft -a list table ip tweed; nft -a list table inet other";
    let before = node.host.sh(bystanders);
    node.reconcile(&ruleset);
    let whole = node.listing();
    let catch_all =
        catch_all(&node.host, "vxlan_ipv4_24_sources4").map(|command| format!("nft '{command}'"));
    let all = [
        "nft delete table inet tweed",
        "nft delete table inet tweed; nft add table inet tweed",
        "nft flush table inet tweed",
        "nft add table inet tweed '{ flags dormant; }'",
        "nft flush chain inet tweed from_pod",
        "nft insert rule inet tweed from_pod accept",
        "nft add rule inet tweed from_pod counter",
        "nft delete rule inet tweed from_pod handle $(nft -a list chain inet tweed from_pod | sed -n 's/.*redirect.*handle //p')",
        "nft replace rule inet tweed from_pod handle $(nft -a list chain inet tweed from_pod | sed -n 's/.*redirect.*handle //p') icmp type redirect counter accept",
        "nft add chain inet tweed mine",
        "nft add chain inet tweed mine '{ type filter hook input priority 5; policy drop; }'",
        "nft add chain inet tweed forward '{ policy drop; }'",
        "nft rename chain inet tweed from_pod from_nobody",
        "nft flush chain inet tweed forward; nft delete chain inet tweed forward; nft add chain inet tweed forward '{ type filter hook forward priority 10; }'; nft add rule inet tweed forward udp dport 8472 jump vxlan_forwarded",
        "nft add set inet tweed mine '{ type ipv4_addr; }'",
        "nft add counter inet tweed mine",
        "nft add element inet tweed vxlan_ipv4_24_sources4 '{ 203.0.113.1 . 0x0a000200 }'",
        "nft add element inet tweed vxlan_ipv6_64_sources6 '{ 2001:db8::1 . 0xfd000000000000020000000000000000 }'",
        "nft delete element inet tweed vxlan_ipv4_24_sources4 '{ 198.51.0.2 . 0x0a000200 }'",
        "nft flush set inet tweed vxlan_ipv4_24_sources4",
        "nft add element inet tweed cluster_cidrs4 '{ 203.0.113.0/24 }'",
        "nft add element inet tweed cluster_cidrs4 '{ 240.0.0.0/4 }'",
        "nft add element inet tweed cluster_cidrs4 '{ 10.0.6.0-10.0.6.7 }'",
        "nft delete element inet tweed cluster_cidrs4 '{ 10.0.3.0/24 }'",
        "nft delete element inet tweed cluster_cidrs4 '{ 10.0.3.0/24 }'; nft add element inet tweed cluster_cidrs4 '{ 10.0.3.0/25 }'",
        "nft flush set inet tweed cluster_cidrs6",
        "nft delete element inet tweed local_cidrs4 '{ 10.0.1.0/24 }'",
    ];
    for tampering in all.into_iter().chain(catch_all.as_deref()) {
        node.host.sh(tampering);
        assert_ne!(node.listing_or_none(), Some(whole.clone()), "{tampering}");
        assert!(node.due(), "not noticed: {tampering}");
        let outcome = node.reconcile(&ruleset);
        assert!(outcome.repaired > 0, "{tampering}: {outcome:?}");
        assert_eq!(outcome.changed, 0, "{tampering}");
        assert_eq!(node.listing(), whole, "{tampering}");
        assert!(!node.due(), "{tampering}");
        assert_eq!(node.reconcile(&ruleset), NOTHING, "{tampering}");

        node.host.sh(tampering);
        node.restart();
        let outcome = node.reconcile(&ruleset);
        assert!(
            outcome.messages > 0,
            "while the agent was down: {tampering}"
        );
        assert_eq!(
            node.listing(),
            whole,
            "while the agent was down: {tampering}"
        );
    }
    assert_eq!(node.host.sh(bystanders), before);
}

#[test]
fn a_forced_look_finds_what_no_notification_told() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    let handles = node.handles();
    let forced = ruleset.clone();
    let outcome = node
        .with(move |table| table.reconcile(&forced, true))
        .unwrap();
    assert_eq!(outcome, NOTHING);
    assert_eq!(node.handles(), handles);
}

#[test]
fn other_tables_changing_is_not_our_business() {
    let node = Node::new();
    node.reconcile(&cluster(3));
    node.host.sh("nft add table ip tweed; nft add set ip tweed x '{ type ipv4_addr; }'; nft add table inet tweed2");
    assert!(!node.due());
}

#[test]
fn lost_notifications_mean_looking_again() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    let handles = node.handles();
    // More than the socket can hold.
    node.host
        .sh("{ echo 'table ip big {'; for i in $(seq 8000); do
             echo \"set s$i {\"; echo 'type ipv4_addr'; echo '}'
           done; echo '}'; } | nft -f -");
    assert!(node.due());
    assert_eq!(node.reconcile(&ruleset), NOTHING);
    assert!(!node.due());
    assert_eq!(node.handles(), handles);
}

#[test]
fn counting_packets_is_no_change() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    node.host.sh(
        "ip link add twa type veth peer name p; ip link set twa group 116 up; ip link set p up",
    );
    let counted = || {
        node.host
            .sh("nft list counter inet tweed link-local-source")
    };
    let before = counted();
    // The pod's end speaks with link-local sources by itself; this one
    // certainly.
    node.host.sh("ip -6 addr add fe80::77/64 dev p nodad");
    let start = Instant::now();
    while counted() == before {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "nothing is counted"
        );
        node.host.sh("ping -6 -c 1 -W 1 -I p ff02::1 || true");
    }
    node.restart();
    assert_eq!(node.reconcile(&ruleset), NOTHING);
}

#[test]
fn a_missing_memory_of_the_table_costs_one_replacement() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    let whole = node.listing();
    std::fs::remove_file(node.run_dir.path().join("nft-skeleton")).unwrap();
    node.restart();
    assert_eq!(node.reconcile(&ruleset).messages, 1);
    assert_eq!(node.listing(), whole);
    node.restart();
    assert_eq!(node.reconcile(&ruleset), NOTHING);
}

#[test]
fn without_nft_the_error_names_the_package_and_the_table_stands() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    let whole = node.listing();
    let run_dir = node.run_dir.path().to_owned();
    let error = node.host.run(move || {
        let mut table = Tables::open(&run_dir, Path::new("/nowhere/nft"), false).unwrap();
        table.reconcile(&ruleset, false).unwrap();
        let other = Ruleset {
            masquerade_nodes: !ruleset.masquerade_nodes,
            ..ruleset
        };
        table.reconcile(&other, false).unwrap_err()
    });
    assert!(matches!(error, Error::NftMissing(_)), "{error:?}");
    assert!(
        error.to_string().contains("install the package nftables"),
        "{error}"
    );
    assert_eq!(node.listing(), whole);
}
