//! What a change costs, counted in messages to the kernel.

use crate::node::{Node, eventually, ip};

const CHANGES: &str = "tweed_kernel_changes_total";

#[test]
fn a_restart_with_nothing_to_do_sends_no_changing_message() {
    let node = Node::new();
    node.list(1..=20);
    let agent = node.start(&[]);
    agent.ready();
    assert!(agent.metric(CHANGES) > 57);
    agent.stop();

    let agent = node.start(&[]);
    agent.ready();
    agent.passes();
    assert_eq!(agent.metric(CHANGES), 0);
    assert_eq!(agent.drift_repaired(), 0);
}

#[test]
fn one_node_of_five_thousand_costs_three_messages() {
    const NODES: u32 = 5_000;
    let node = Node::new();
    node.list(1..=NODES);
    let agent = node.start(&[]);
    agent.ready();
    let before = agent.metric(CHANGES);
    assert!(before >= u64::from(NODES - 1) * 3);

    for (nodes, what, there) in [
        (NODES + 1, "a Node more", true),
        (NODES, "a Node less", false),
    ] {
        let before = agent.metric(CHANGES);
        node.list(1..=nodes);
        let route = format!("route show {}", crate::node::pod_cidr(NODES + 1));
        eventually(|| match ip(&route).is_empty() != there {
            true => Ok(()),
            false => Err(what.to_owned()),
        });
        agent.passes();
        assert_eq!(agent.metric(CHANGES) - before, 3, "{what}");
        assert_eq!(agent.drift_repaired(), 0);
    }
}
