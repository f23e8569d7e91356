//! Files that others put into the agent's folders, and that have no end: the agent goes on,
//! and ends when it is told to.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::descriptors::{PROBES, Program};
use crate::node::{Node, manifest};
use crate::service_health::answers;

#[test]
fn files_without_end_neither_hang_the_agent_nor_fill_its_memory() {
    let node = Node::new();
    node.write_nodes(&[manifest(1), manifest(2)].concat());
    for folder in ["run", "net.d"] {
        fs::create_dir_all(node.path(folder)).unwrap();
    }
    let fifos = [
        "run/ready",
        "run/agent.json",
        "run/policy",
        "run/nodes.jsonl",
        "run/leaving.lock",
        "net.d/00-fifo.conflist",
        "net.d/10-tweed.conflist",
    ];
    for name in fifos {
        mkfifo(&node.path(name), Mode::S_IRWXU).unwrap();
    }
    for name in ["net.d/01-zero.conflist", "run/nft-skeleton"] {
        symlink("/dev/zero", node.path(name)).unwrap();
    }
    let program = Program::start(&node, 1024, 4096);
    answers(PROBES, "/readyz", 200, "00-fifo.conflist");
    answers(PROBES, "/readyz", 200, "01-zero.conflist");
    node.publishes("run/agent.json", "\"ready\":");
    node.publishes("net.d/10-tweed.conflist", "tweed");
    program.ends();

    // What it does not overwrite, as it is not its own to decide about, is named.
    for name in ["run/sysctls.json", "run/boot_id"] {
        let _ = fs::remove_file(node.path(name));
        mkfifo(&node.path(name), Mode::S_IRWXU).unwrap();
    }
    let program = Program::start(&node, 1024, 4096);
    answers(PROBES, "/readyz", 200, "it is not a regular file");
    program.ends();
}
