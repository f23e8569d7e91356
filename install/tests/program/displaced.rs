//! Other networks' configs are renamed and restored only on request.

use crate::node::{Node, release};

const CONFIGS: [&str; 4] = [
    "/etc/cni/net.d/05-cilium.conflist",
    "/etc/cni/net.d/10-flannel.conflist",
    "/etc/cni/net.d/10-tweed.conflist",
    "/etc/cni/net.d/87-podman.conflist",
];

fn node() -> (Node, String) {
    let node = Node::new();
    for config in CONFIGS {
        node.write(config, config);
    }
    // Outside of the node's files, to compare them.
    let folder = node.path("image");
    release(&folder, "1");
    let image = folder.to_str().unwrap().to_owned();
    (node, image)
}

fn configs(node: &Node) -> Vec<String> {
    let mut files = node.files();
    files.retain(|file| file.starts_with("/etc/cni"));
    files
}

#[test]
fn configs_stay_unless_told_otherwise() {
    let (node, image) = node();
    node.run(&["plugins", "--source", &image]).succeeds();
    assert_eq!(configs(&node), CONFIGS);
}

#[test]
fn those_that_would_win_go_aside_and_come_back() {
    let (node, image) = node();
    let answer = node.run(&["plugins", "--source", &image, "--displace-cni"]);
    let said = answer.succeeds();
    assert_eq!(said.matches("displaced ").count(), 2, "{said}");
    let expected = [
        "/etc/cni/net.d/05-cilium.conflist.tweed-displaced",
        "/etc/cni/net.d/10-flannel.conflist.tweed-displaced",
        CONFIGS[2],
        CONFIGS[3],
    ];
    assert_eq!(configs(&node), expected);

    let said = node.run(&["uninstall"]).succeeds();
    assert_eq!(
        said.matches("--restore-cni restores it").count(),
        2,
        "{said}"
    );
    node.run(&["uninstall", "--restore-cni"]).succeeds();
    assert_eq!(configs(&node), [CONFIGS[0], CONFIGS[1], CONFIGS[3]]);
    assert_eq!(node.read(CONFIGS[1]), CONFIGS[1]);
}

/// Without it pods would lose the networks that Multus gives them besides tweed's. One that
/// calls another network's config is like any other.
#[test]
fn multus_that_may_call_tweed_stays() {
    for (content, stays) in [
        (
            r#"{"type": "multus-shim", "clusterNetwork": "/host/etc/cni/net.d/10-tweed.conflist"}"#,
            true,
        ),
        (
            r#"{"type": "multus", "delegates": [{"type": "flannel"}]}"#,
            false,
        ),
    ] {
        let (node, image) = node();
        let multus = "/etc/cni/net.d/00-multus.conf";
        node.write(multus, content);
        let words = ["plugins", "--source", &image, "--displace-cni"];
        let said = node.run(&words).succeeds();
        assert_eq!(configs(&node).contains(&multus.to_owned()), stays, "{said}");
        assert_eq!(
            said.contains("which may be 10-tweed.conflist"),
            stays,
            "{said}"
        );
        assert!(!configs(&node).contains(&CONFIGS[0].to_owned()), "{said}");
    }
}

/// A pod sets the variable.
#[test]
fn the_variable_does_what_the_flag_does() {
    let (node, image) = node();
    let say = "export TWEED_DISPLACE_CNI=true";
    node.run_after(say, &["plugins", "--source", &image])
        .succeeds();
    assert!(!configs(&node).contains(&CONFIGS[0].to_owned()));
}

/// `kubectl set env` alone mounts nothing.
#[test]
fn a_folder_that_is_not_there_is_named() {
    let node = Node::new();
    release(&node.path("image"), "1");
    let image = node.path("image").to_str().unwrap().to_owned();
    let words = ["plugins", "--source", &image, "--displace-cni"];
    let said = node.run(&words).fails();
    assert!(said.contains("/etc/cni/net.d does not exist"), "{said}");
    assert!(said.contains("component displace-cni"), "{said}");
    // A machine without any network has no such folder either.
    let words = ["host", "--source", &image, "--displace-cni"];
    node.run(&words).succeeds();
}

#[test]
fn one_that_came_again_is_not_overwritten() {
    let (node, image) = node();
    let words = ["plugins", "--source", &image, "--displace-cni"];
    node.run(&words).succeeds();
    node.write(CONFIGS[1], "newer");
    let said = node.run(&["uninstall", "--restore-cni"]).succeeds();
    assert!(said.contains("exists again"), "{said}");
    assert_eq!(node.read(CONFIGS[1]), "newer");
    assert_eq!(node.read(CONFIGS[0]), CONFIGS[0]);
}
