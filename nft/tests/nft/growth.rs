//! What changes with the Nodes of a cluster, one or thousands at once, is written as
//! elements; the rules stay.

use tweed_component::schema::Sets as _;
use tweed_nft::Outcome;
use tweed_nft::Table as _;
use tweed_planner::overlay::desired::Ruleset;

use crate::node::{NOTHING, Node, cluster};

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
        let delta = removed.change_to(&added);
        let outcome = node.with(move |table| table.overlay.follow(&mut table.nft, &delta));
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
