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
    assert!(said.contains("&& systemctl enable tweed-agent"), "{said}");
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
    let wants = node.path("/etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wants).unwrap();
    symlink(UNIT, wants.join("tweed-agent.service")).unwrap();
    let said = node.run(&["host", "--source", &source]).succeeds();
    let next = "next: systemctl daemon-reload && systemctl enable tweed-agent && \
                systemctl restart tweed-agent\n";
    assert!(said.contains(next), "{said}");
    assert_eq!(node.read(ENVIRONMENT), "edited");
    assert_eq!(node.read(NODES), "edited");
    assert!(
        node.read(UNIT)
            .contains("ExecStart=/usr/local/bin/tweed-agent")
    );
    assert!(node.read("/opt/cni/bin/tweed").contains("tweed 2"));
}

/// As after a first attempt that failed: the service has never been enabled.
#[test]
fn a_second_call_takes_its_flags_and_says_to_enable_the_service() {
    let (node, _outside, source) = machine();
    let host = |more: &[&str]| node.run(&[&["host", "--source", &source], more].concat());
    host(&["--nodes", "/srv/nodes.yaml"]).succeeds();
    let said = host(&["--node-name", "alpha"]).succeeds();
    assert!(
        said.contains("write all nodes into /srv/nodes.yaml"),
        "{said}"
    );
    assert!(said.contains("systemctl enable tweed-agent"), "{said}");
    let text = node.read(ENVIRONMENT);
    for line in ["TWEED_NODE_NAME=alpha", "TWEED_NODES=/srv/nodes.yaml"] {
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
    }

    node.write(ENVIRONMENT, &format!("{text}TWEED_BACKEND=direct\n"));
    let said = host(&["--node-name", "beta"]).fails();
    assert!(said.contains("(TWEED_NODE_NAME=beta)"), "{said}");
    assert!(!said.contains("next: "), "{said}");
    // What is the default may stand there.
    node.write(
        ENVIRONMENT,
        &format!("{text}TWEED_RUN_DIR=/run/tweed\nTWEED_BACKEND=direct\n"),
    );
    host(&["--node-name", "alpha"]).succeeds();
    assert!(node.read(ENVIRONMENT).contains("\nTWEED_NODE_NAME=alpha\n"));
}

#[test]
fn agent_and_uninstall_have_the_folders_that_were_given() {
    let (node, _outside, source) = machine();
    let before = node.files();
    let folders = [
        ["--cni-bin-dir", "/srv/bin"],
        ["--cni-conf-dir", "/srv/conf"],
        ["--run-dir", "/srv/run"],
        ["--program-dir", "/opt/bin"],
    ];
    let words = [&["host", "--source", &source], &folders.concat()[..]].concat();
    node.run(&words).succeeds();
    let text = node.read(ENVIRONMENT);
    for line in [
        "TWEED_CNI_BIN_DIR=/srv/bin",
        "TWEED_CNI_CONF_DIR=/srv/conf",
        "TWEED_RUN_DIR=/srv/run",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
    }
    let unit = node.read(UNIT);
    for line in [
        "ExecStart=/opt/bin/tweed-agent",
        "ReadWritePaths=/srv/conf",
        "ReadWritePaths=/srv/run",
    ] {
        assert!(unit.contains(&format!("\n{line}\n")), "{unit}");
    }
    // The unit does not start without them.
    assert!(node.path("/srv/conf").is_dir() && node.path("/srv/run").is_dir());
    let installed = node.files();
    assert!(installed.contains(&"/srv/bin/tweed".to_owned()));
    assert!(installed.contains(&"/opt/bin/tweed-agent".to_owned()));

    // An upgrade keeps them, and check looks there.
    node.run(&["host", "--source", &source]).succeeds();
    assert_eq!(node.files(), installed);
    let checked = node.run(&["check"]).stdout;
    assert!(checked.contains("/srv/bin/tweed is there"), "{checked}");

    node.write("/srv/run/agent.json", "{}");
    node.write("/srv/conf/10-tweed.conflist", "{}");
    node.run(&["uninstall"]).succeeds();
    assert_eq!(node.files(), before);
    assert!(!node.path("/etc/tweed").exists());
}

/// Without the file a second call would look for them in the default folders.
#[test]
fn the_folders_are_known_until_nothing_is_left_in_them() {
    let (node, _outside, source) = machine();
    let words = ["host", "--source", &source, "--run-dir", "/srv/run"];
    node.run(&words).succeeds();
    node.write("/srv/run/sysctls.json", "nonsense");
    let said = node.run(&["uninstall"]).fails();
    assert!(said.contains("the next uninstallation reads"), "{said}");
    assert_eq!(node.files(), [ENVIRONMENT, "/srv/run/sysctls.json"]);
    node.write("/srv/run/sysctls.json", "{}");
    node.run(&["uninstall"]).succeeds();
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn what_the_unit_hides_from_the_agent_is_refused() {
    let (node, _outside, source) = machine();
    for (flag, path) in [
        ("--nodes", "/root/nodes.yaml"),
        ("--run-dir", "/tmp/tweed"),
        ("--program-dir", "/home/me/bin"),
    ] {
        let said = node.run(&["host", "--source", &source, flag, path]).fails();
        assert!(said.contains("the unit hides"), "{said}");
        assert!(said.contains(flag), "{said}");
    }
    assert_eq!(node.files(), [""; 0]);
}

/// Until all of tweed is there the machine keeps the network that it has.
#[test]
fn another_network_is_displaced_only_if_nothing_failed() {
    let (node, _outside, source) = machine();
    let flannel = "/etc/cni/net.d/10-flannel.conflist";
    node.write(flannel, "{}");
    std::fs::create_dir_all(node.path("/usr/local/bin")).unwrap();
    let mount = format!(
        "exec unshare --mount sh -c 'mount -t tmpfs -o ro tweed-test {}; exec \"$@\"' sh \"$@\"",
        node.path("/usr/local/bin").display()
    );
    let words = ["host", "--source", &source, "--displace-cni"];
    let said = node.run_after(&mount, &words).fails();
    assert!(said.contains("another folder with --program-dir"), "{said}");
    assert!(!said.contains("displaced"), "{said}");
    assert_eq!(node.read(flannel), "{}");
    let said = node.run(&words).succeeds();
    let (last, next) = (
        said.find("displaced ").unwrap(),
        said.find("next: ").unwrap(),
    );
    assert!(
        last > said.rfind("installed ").unwrap() && last < next,
        "{said}"
    );
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
        let removed = line.replace("would remove ", "removed ");
        assert!(done.contains(&removed), "{removed} is not in\n{done}");
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
