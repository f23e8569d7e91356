//! When the files of the agent are written, and what follows where they cannot be.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::node::{Node, eventually};
use crate::script::write_script;

/// Half of the time that a plugin has for its answer.
const BUSY: Duration = Duration::from_secs(1);

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

/// It has two seconds for its answer.
#[test]
fn an_agent_does_not_wait_for_a_plugin_that_hangs_when_it_is_to_stop() {
    loop {
        let node = Node::new();
        node.list(1..=2);
        fs::create_dir_all(node.path("bin")).unwrap();
        let hangs = "#!/bin/sh\n> \"$0.asked\"\nexec sleep 60\n";
        write_script(&node.path("bin/portmap"), hangs);
        let agent = node.start(&[]);
        let asked = node.path("bin/portmap.asked");
        eventually(|| {
            if asked.exists() {
                Ok(())
            } else {
                Err("the plugin is not asked".to_owned())
            }
        });
        let asked = fs::metadata(asked).and_then(|file| file.modified());
        agent.cancel();
        // It was told to end at some time before this.
        let held_up = asked.unwrap().elapsed().unwrap_or_default();
        agent.stop();
        // What is written after the answer is not.
        let has_waited = node.path("run/agent.json").exists();
        if !has_waited {
            return;
        }
        // On a machine that is this busy the time may have been over before.
        assert!(held_up > BUSY, "it has waited");
    }
}

/// What the lock holds is for a message only.
#[test]
fn an_agent_starts_although_its_run_folder_is_full() {
    let node = Node::new();
    let run_dir = node.path("run");
    fs::create_dir(&run_dir).unwrap();
    // The mount ends with the process, which has no file of the boot ID and so ends before it
    // does anything.
    let script = "mount -t tmpfs -o size=4k full \"$1\" && \
        { cat /dev/zero > \"$1/filler\"; \
        exec \"$0\" --node-name n1 --nodes /x --run-dir \"$1\" --boot-id-file /nonexistent; }";
    let program = std::env::var_os("CARGO_BIN_EXE_tweed-agent").unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script]);
    let output = unshare.arg(program).arg(run_dir).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot read /nonexistent"), "{said}");
}
