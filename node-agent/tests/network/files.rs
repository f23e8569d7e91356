//! The files of the agent, where they cannot be written.

use std::fs;

use crate::node::{Node, eventually};
use crate::script::write_script;

/// The API server would be told that the node is available, and each start of the agent
/// would say so again.
#[test]
fn a_node_is_not_ready_for_a_moment_before_its_config_is_written() {
    let node = Node::new();
    node.list(1..=2);
    // Another file cannot take the name of a folder that is not empty.
    fs::create_dir_all(node.path("net.d/10-tweed.conflist/taken")).unwrap();
    fs::create_dir_all(node.path("bin")).unwrap();
    // The config waits for the answer of a plugin, while the kernel is as it should be.
    write_script(&node.path("bin/portmap"), "#!/bin/sh\nexec sleep 60\n");
    let agent = node.start(&[]);
    eventually(|| {
        assert!(!agent.is_ready());
        match agent.problems() {
            problems
                if problems
                    .iter()
                    .any(|one| one.starts_with("file-unwritable")) =>
            {
                Ok(())
            }
            problems => Err(format!("{problems:?}")),
        }
    });
    fs::remove_dir_all(node.path("net.d/10-tweed.conflist")).unwrap();
    agent.ready();
}
