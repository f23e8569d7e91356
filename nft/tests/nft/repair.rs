//! What others change is put back; what is right is left alone; other tables
//! are never touched.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tweed_nft::{Error, Outcome, Table};
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{Ruleset, VxlanMatch};

use crate::lab::Host;

/// A cluster of `nodes` nodes, this one being number 1.
pub fn cluster(nodes: u32) -> Ruleset {
    let address = |number: u32| IpAddr::from((0xc633_0000 + number).to_be_bytes());
    let cidr = |number: u32| {
        let base = IpAddr::from((0x0a00_0000 + (number << 8)).to_be_bytes());
        ipnetwork::IpNetwork::new(base, 24).unwrap()
    };
    Ruleset {
        masquerade: Some(Masquerade::RandomFully),
        masquerade_ipv6: true,
        masquerade_nodes: true,
        vxlan: Some(VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        }),
        local_cidrs: [cidr(1), "fd00:1::/64".parse().unwrap()].into(),
        cluster_cidrs: (1..=nodes)
            .map(cidr)
            .chain(["fd00::/16".parse().unwrap()])
            .collect(),
        node_addresses: (1..=nodes).map(address).collect(),
        underlay_addresses: Default::default(),
        vxlan_sources: (2..=nodes).map(|n| (address(n), cidr(n))).collect(),
        pod_links: [(address(1), 7)].into(),
    }
}

/// A host with an agent's table, which lives on the host's thread.
pub struct Node {
    pub host: Host,
    pub run_dir: TempDir,
    table: Arc<Mutex<Option<Table>>>,
}

impl Node {
    pub fn new() -> Self {
        let node = Self {
            host: Host::new(),
            run_dir: tempfile::tempdir().unwrap(),
            table: Arc::default(),
        };
        node.restart();
        node
    }

    /// The agent dies and another one starts.
    pub fn restart(&self) {
        let run_dir = self.run_dir.path().to_owned();
        let table = Arc::clone(&self.table);
        self.host.run(move || {
            *table.lock().unwrap() = Some(Table::open(&run_dir, Path::new("nft")).unwrap());
        });
    }

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Table) -> T + Send + 'static) -> T {
        let table = Arc::clone(&self.table);
        self.host
            .run(move || work(table.lock().unwrap().as_mut().unwrap()))
    }

    pub fn reconcile(&self, ruleset: &Ruleset) -> Outcome {
        let ruleset = ruleset.clone();
        self.with(move |table| table.reconcile(&ruleset, false))
            .unwrap()
    }

    pub fn due(&self) -> bool {
        self.with(Table::drain_notifications).unwrap()
    }

    /// The table as `nft` shows it, counters aside.
    pub fn listing(&self) -> String {
        self.host.sh("nft -s list table inet tweed")
    }

    /// The same with the kernel's handles: differs if anything was replaced.
    fn handles(&self) -> String {
        self.host.sh("nft -s -a list table inet tweed")
    }
}

pub const NOTHING: Outcome = Outcome {
    changed: 0,
    repaired: 0,
    messages: 0,
};

/// Thousands of Nodes that join or leave at once are a change of elements like any other:
/// the table is not loaded anew by the program `nft`, for which each of them would cost
/// as much as all of them.
#[test]
fn thousands_of_nodes_at_once_do_not_replace_the_table() {
    let node = Node::new();
    node.reconcile(&cluster(3));
    // A table that is loaded anew has another handle.
    let table = || node.handles().lines().next().unwrap().to_owned();
    let before = table();
    assert!(before.contains("# handle"), "{before}");
    for nodes in [6_000, 1_000] {
        let outcome = node.reconcile(&cluster(nodes));
        // A range of addresses and two more elements for each Node.
        assert!(outcome.changed > 14_000, "{outcome:?}");
        assert_eq!(outcome.repaired, 0);
        assert_eq!(table(), before, "{nodes} Nodes");
        assert_eq!(node.reconcile(&cluster(nodes)), NOTHING);
    }
}

/// What Nodes change is written without looking at the table, but for a pod CIDR whose
/// prefix length is new: that has no set yet.
#[test]
fn a_pod_cidr_of_a_new_length_is_taken_up_by_the_next_reconcile() {
    let node = Node::new();
    let before = cluster(3);
    node.reconcile(&before);
    let one_more = |inner: &str| Ruleset {
        vxlan_sources: [("198.51.0.9".parse().unwrap(), inner.parse().unwrap())].into(),
        ..Ruleset::default()
    };
    let follow = |removed: Ruleset, added: Ruleset| {
        let outcome = node.with(move |table| table.follow(&removed, &added));
        outcome.unwrap()
    };
    let (same, other) = (one_more("10.0.9.0/24"), one_more("10.0.8.0/23"));
    let changed = |outcome: Option<Outcome>| outcome.map(|outcome| outcome.changed);
    assert_eq!(changed(follow(Ruleset::default(), same.clone())), Some(1));
    assert!(node.listing().contains("198.51.0.9 . 0xa000900"));
    assert_eq!(follow(same.clone(), other.clone()), None);
    let after = Ruleset {
        vxlan_sources: &before.vxlan_sources | &other.vxlan_sources,
        ..before.clone()
    };
    assert_eq!(node.reconcile(&after).repaired, 0);
    let listing = node.listing();
    assert!(listing.contains("198.51.0.9 . 0xa000800"), "{listing}");
    assert!(!listing.contains("0xa000900"), "{listing}");
    // The last one of its length goes: its set stays until the table is looked at.
    assert_eq!(changed(follow(other, Ruleset::default())), Some(1));
    assert!(node.listing().contains("vxlan_ipv4_23_sources4"));
    node.reconcile(&before);
    assert!(!node.listing().contains("vxlan_ipv4_23_sources4"));
    assert_eq!(node.reconcile(&before), NOTHING);
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
fn one_node_more_is_one_transaction_of_elements_and_no_new_rules() {
    let node = Node::new();
    node.reconcile(&cluster(5));
    let outcome = node.reconcile(&cluster(6));
    assert_eq!(
        (outcome.changed, outcome.repaired, outcome.messages),
        (3, 0, 3)
    );
    assert!(!node.due(), "the own transaction is no news");
    let grown = node.listing();
    for element in ["10.0.6.0/24", "198.51.0.6"] {
        assert!(grown.contains(element), "{element} in {grown}");
    }
    let outcome = node.reconcile(&cluster(5));
    assert_eq!((outcome.changed, outcome.messages), (3, 3));
    let shrunk = node.listing();
    for element in ["10.0.6.0/24", "198.51.0.6"] {
        assert!(!shrunk.contains(element), "{element} in {shrunk}");
    }
    node.restart();
    assert_eq!(node.reconcile(&cluster(5)), NOTHING);
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
    for tampering in [
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
        "nft add element inet tweed vxlan_ipv4_24_sources4 '{ * }'",
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
    ] {
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

impl Node {
    fn listing_or_none(&self) -> Option<String> {
        let text = self
            .host
            .sh("nft -s list table inet tweed 2>/dev/null || true");
        (!text.is_empty()).then_some(text)
    }
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
fn a_thousand_nodes_are_one_transaction_of_several_messages() {
    let node = Node::new();
    node.reconcile(&cluster(3));
    let rules = |text: String| {
        let (_, rules) = text.split_once("chain").unwrap();
        rules.to_owned()
    };
    let before = rules(node.handles());
    let outcome = node.reconcile(&cluster(1503));
    // 1,500 keys, twice as many for ranges, 1,000 in a message.
    assert_eq!((outcome.changed, outcome.messages), (4500, 3 + 2 + 2));
    assert_eq!(rules(node.handles()), before, "the rules were not replaced");
    node.restart();
    assert_eq!(node.reconcile(&cluster(1503)), NOTHING);
    assert_eq!(node.reconcile(&cluster(3)).changed, 4500);
    assert_eq!(rules(node.handles()), before, "the rules were not replaced");
}

#[test]
fn counting_packets_is_no_change() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    node.host.sh(
        "ip link add twa type veth peer name p; ip link set twa group 116 up; ip link set p up",
    );
    let count = |text: &str| text.matches("packets 0 bytes 0").count();
    let before = count(&node.host.sh("nft list table inet tweed"));
    // The pod's end speaks with link-local sources by itself; this one
    // certainly.
    node.host.sh("ip -6 addr add fe80::77/64 dev p nodad; ping -6 -c 1 -W 1 -I p fe80::1 || true; ping -6 -c 1 -W 1 -I p ff02::1 || true");
    assert!(count(&node.host.sh("nft list table inet tweed")) < before);
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
        let mut table = Table::open(&run_dir, Path::new("/nowhere/nft")).unwrap();
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

#[test]
fn thousands_of_nodes_come_and_go() {
    let node = Node::new();
    let few = cluster(3);
    let many = cluster(5000);
    node.reconcile(&few);
    let outcome = node.reconcile(&many);
    assert_eq!(outcome.changed, 3 * 4997);
    assert!(!node.due());
    node.restart();
    assert_eq!(node.reconcile(&many), NOTHING);
    assert_eq!(node.reconcile(&cluster(4999)).messages, 3);
    node.reconcile(&few);
    node.restart();
    assert_eq!(node.reconcile(&few), NOTHING);
    let listing = node.listing();
    assert!(!listing.contains("10.0.4.0"), "{listing}");
}
