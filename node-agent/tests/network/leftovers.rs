//! What nobody owns any more of a local pod is taken back, and nothing else.

use crate::node::{Agent, Node, eventually, ip, succeeds};
use crate::pod::{Pod, WAIT};

/// A pod whose record says that a DEL of it is at work, and its node's agent.
fn being_deleted(node: &Node) -> (Agent, Pod) {
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(node, "c1", "10.0.1.5");
    agent.passes();
    let mut locked = pod.store.lock(WAIT).unwrap();
    locked.mark_deleting(&pod.attachment).unwrap();
    drop(locked);
    (agent, pod)
}

#[test]
fn a_pod_that_is_being_deleted_is_not_mended() {
    let node = Node::new();
    let (agent, pod) = being_deleted(&node);
    ip(&format!("route delete {}", pod.address));
    agent.passes();
    assert_eq!(pod.route(), "");
    let repaired = agent.metric("tweed_drift_repaired_total{kind=\"route\"}");
    assert_eq!(repaired, 0);
}

#[test]
fn a_del_that_was_cut_off_is_ended_by_the_agent() {
    let node = Node::new();
    let (_agent, pod) = being_deleted(&node);
    eventually(|| match pod.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    assert!(!ip("link show").contains(&pod.link));
}

#[test]
fn a_pod_whose_link_is_gone_is_swept_and_its_address_free() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let gone = Pod::add(&node, "c1", "10.0.1.5");
    let stays = Pod::add(&node, "c2", "10.0.1.6");
    agent.passes();
    ip(&format!("link delete {}", gone.link));
    eventually(|| match gone.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    eventually(|| match agent.metric("tweed_swept_total") {
        1 => Ok(()),
        other => Err(format!("{other} addresses swept")),
    });
    assert!(stays.record().is_some());
    stays.whole().unwrap();
}

#[test]
fn what_an_add_that_died_has_left_is_taken_away() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let mut pod = Pod::begin(&node, "c1", "10.0.1.5");
    drop(pod.adding.take());
    eventually(|| match pod.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    assert!(!succeeds("ip", &format!("link show {}", pod.link)));
    let alive = Pod::begin(&node, "c2", "10.0.1.6");
    agent.passes();
    assert!(alive.record().is_some());
}

#[test]
fn links_on_their_way_out_are_finished_and_others_in_the_group_are_not() {
    let node = Node::new();
    node.list(1..=2);
    ip("link add twx000000000000 group 117 type veth peer name end");
    ip("link set twx000000000000 alias tweed:tweed/c1/eth0");
    ip("link add foreign group 117 type veth peer name other");
    let agent = node.start(&[]);
    agent.ready();
    eventually(|| {
        if succeeds("ip", "link show twx000000000000") {
            Err("it is still there".to_owned())
        } else {
            Ok(())
        }
    });
    assert!(succeeds("ip", "link show foreign"));
}

#[test]
fn links_that_a_killed_finisher_left_go_at_once() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    ip("link add foreign group 117 type veth peer name other");
    // The second was killed while it deleted: the group is 0x74123456.
    for (n, group) in [(1, "117"), (2, "1947350102"), (3, "117")] {
        let link = format!("twx00000000000{n}");
        ip(&format!(
            "link add {link} group {group} type veth peer name end{n}"
        ));
        ip(&format!("link set {link} alias tweed:tweed/c{n}/eth0"));
    }
    let agent = node.start(&[]);
    agent.ready();
    eventually(
        || match ip("link show type veth").matches(": twx").count() {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        },
    );
    agent.passes();
    assert!(succeeds("ip", "link show foreign"));
    // Each is moved, and their group is deleted; a restart alone changes nothing.
    assert_eq!(agent.metric("tweed_kernel_changes_total"), 4);
}
