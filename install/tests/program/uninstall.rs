//! `uninstall` where there is little to do; on a node with agent and pods it is
//! the lab's (`conformance/tests/install`).

use crate::node::Node;

#[test]
fn nothing_to_do_is_said() {
    let node = Node::new();
    for words in [&["uninstall"][..], &["uninstall", "--dry-run"]] {
        let said = node.run(words).succeeds();
        assert_eq!(said, "nothing of tweed is on this machine\n");
    }
}

#[test]
fn something_that_is_kept_is_not_nothing() {
    let node = Node::new();
    node.write("/etc/cni/net.d/05-other.conf.tweed-displaced", "{}");
    let said = node.run(&["uninstall"]).succeeds();
    assert!(
        said.starts_with("kept ") && !said.contains("nothing"),
        "{said}"
    );
}

/// In a pod: the folder is a mount there, and cannot go.
#[test]
fn a_run_folder_that_is_mounted_is_emptied() {
    let node = Node::new();
    node.write("/run/tweed/agent.json", "{}");
    let run = node.path("/run/tweed");
    let run = run.display();
    let mount =
        format!("exec unshare --mount sh -c 'mount --bind {run} {run}; exec \"$@\"' sh \"$@\"");
    let said = node.run_after(&mount, &["uninstall"]).succeeds();
    assert!(said.contains("it is empty, and mounted"), "{said}");
    assert_eq!(
        std::fs::read_dir(node.path("/run/tweed")).unwrap().count(),
        0
    );
    let said = node.run(&["uninstall"]).succeeds();
    assert!(
        said.starts_with("removed ") && said.ends_with("/run/tweed\n"),
        "{said}"
    );
}
