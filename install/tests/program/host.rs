//! `host`, and `uninstall` of what it has installed.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::node::{Node, release};

const UNIT: &str = "/etc/systemd/system/tweed-agent.service";
const ENVIRONMENT: &str = "/etc/tweed/agent.env";
const NODES: &str = "/etc/tweed/nodes.yaml";

/// A machine, and a release outside of it.
fn machine() -> (Node, Node, String) {
    let outside = Node::new();
    release(outside.root(), "1");
    let source = outside.root().to_str().unwrap().to_owned();
    (Node::new(), outside, source)
}

#[test]
fn all_comes_that_a_machine_needs_and_the_next_command_is_said() {
    let (node, _outside, source) = machine();
    let words = ["host", "--source", &source, "--node-name", "alpha"];
    let said = node.run(&words).succeeds();
    let expected = [
        UNIT,
        ENVIRONMENT,
        NODES,
        "/opt/cni/bin/tweed",
        "/opt/cni/bin/tweed-ipam",
        "/usr/local/bin/tweed-agent",
        "/usr/local/bin/tweed-install",
    ];
    assert_eq!(node.files(), expected);
    assert!(
        said.contains("write all nodes into /etc/tweed/nodes.yaml"),
        "{said}"
    );
    assert!(
        said.contains("systemctl enable --now tweed-agent"),
        "{said}"
    );
    assert!(node.read(ENVIRONMENT).contains("\nTWEED_NODE_NAME=alpha\n"));
    let agent = Command::new(node.path("/usr/local/bin/tweed-agent")).output();
    assert_eq!(agent.unwrap().stdout, b"tweed-agent 1\n");
}

#[test]
fn an_upgrade_keeps_what_was_edited() {
    let (node, outside, source) = machine();
    node.run(&["host", "--source", &source]).succeeds();
    for file in [ENVIRONMENT, NODES] {
        node.write(file, "edited");
    }
    node.write(UNIT, "of an older version");
    release(outside.root(), "2");
    let said = node.run(&["host", "--source", &source]).succeeds();
    assert!(said.contains("systemctl restart tweed-agent"), "{said}");
    assert_eq!(node.read(ENVIRONMENT), "edited");
    assert_eq!(node.read(NODES), "edited");
    assert!(
        node.read(UNIT)
            .contains("ExecStart=/usr/local/bin/tweed-agent")
    );
    assert!(node.read("/opt/cni/bin/tweed").contains("tweed 2"));
}

#[test]
fn nodes_elsewhere_need_no_example() {
    let (node, _outside, source) = machine();
    node.run(&["host", "--source", &source, "--nodes", "/srv/nodes.yaml"])
        .succeeds();
    assert!(
        node.read(ENVIRONMENT)
            .contains("\nTWEED_NODES=/srv/nodes.yaml\n")
    );
    assert!(!node.path(NODES).exists());
}

#[test]
fn a_value_that_would_mean_something_else_is_refused() {
    let (node, _outside, source) = machine();
    let said = node.run(&["host", "--source", &source, "--node-name", "a b"]);
    assert!(said.fails().contains("not allowed in an environment file"));
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn uninstall_leaves_the_machine_as_it_was() {
    let (node, _outside, source) = machine();
    node.write("/etc/cni/net.d/87-podman.conflist", "{}");
    node.write("/opt/cni/bin/bridge", "");
    let before = node.files();
    let words = ["host", "--source", &source, "--node-name", "alpha"];
    node.run(&words).succeeds();
    let wants = node.path("/etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wants).unwrap();
    symlink(UNIT, wants.join("tweed-agent.service")).unwrap();

    let said = node.run(&["uninstall", "--dry-run"]).succeeds();
    assert!(
        said.lines().all(|line| line.starts_with("would remove ")),
        "{said}"
    );
    assert_ne!(node.files(), before);
    let done = node.run(&["uninstall"]).succeeds();
    for line in said.lines().filter(|line| !line.ends_with(", if empty")) {
        let line = line.replace("would remove ", "removed ");
        assert!(done.contains(&line), "{line} is not in\n{done}");
    }
    assert_eq!(node.files(), before);
    assert!(!node.path("/etc/tweed").exists());
    let said = node.run(&["uninstall"]).succeeds();
    assert_eq!(said, "nothing of tweed is on this machine\n");
}

#[test]
fn uninstall_keeps_what_a_person_wrote() {
    let (node, _outside, source) = machine();
    node.run(&["host", "--source", &source]).succeeds();
    node.write(NODES, "edited");
    node.write("/etc/tweed/notes", "mine");
    let said = node.run(&["uninstall"]).succeeds();
    assert!(said.contains("nodes.yaml: it was edited"), "{said}");
    assert!(
        said.contains("it still contains nodes.yaml, notes"),
        "{said}"
    );
    assert_eq!(node.files(), [NODES, "/etc/tweed/notes"]);
}
