//! Notifications come faster than the agent reads them, into a receive buffer that has
//! no room: the kernel drops them, and the agent looks at everything again.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;

use crate::node::{Node, batch, eventually, picture};

const NODES: u32 = 40;
const ROUNDS: u32 = 6;

/// The number that netlink(7) gives rtnetlink.
const ROUTE: &str = "0";

/// The receive buffers of the agent's monitors: all sockets of rtnetlink in this thread's
/// network namespace that listen to multicast groups. The agent is a thread of this
/// process, so its descriptors are this process's too.
fn monitors() -> Vec<RawFd> {
    let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let rows = sockets.lines().skip(1);
    let inodes: BTreeSet<String> = rows
        .filter_map(|row| {
            let columns: Vec<&str> = row.split_whitespace().collect();
            // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
            let listens = columns[1] == ROUTE && columns[3] != "00000000";
            listens.then(|| format!("socket:[{}]", columns[9]))
        })
        .collect();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors
        .filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            inodes.contains(&target.display().to_string())
        })
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

/// How many notifications the kernel has dropped in this namespace.
fn dropped() -> u64 {
    let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let rows = sockets.lines().skip(1);
    rows.filter_map(|row| row.split_whitespace().nth(8)?.parse::<u64>().ok())
        .sum()
}

#[expect(unsafe_code, reason = "the agent keeps its socket for itself")]
fn shrink(monitor: RawFd) {
    // SAFETY: the agent that owns the descriptor lives as long as this test.
    let monitor = unsafe { BorrowedFd::borrow_raw(monitor) };
    // The kernel takes its minimum.
    setsockopt(&monitor, RcvBuf, &1).unwrap();
}

#[test]
fn an_agent_that_loses_notifications_looks_again_and_converges() {
    let node = Node::new();
    node.list(1..=NODES);
    let agent = node.start(&[]);
    agent.ready();
    let whole = picture();
    let monitors = monitors();
    assert!(!monitors.is_empty(), "the agent has no monitor");
    monitors.into_iter().for_each(shrink);
    for round in 0..ROUNDS {
        let mut lines = Vec::new();
        for n in 2..=NODES {
            // Others' addresses come and go, so that what is said about tweed's objects
            // has no room.
            for _ in 0..8 {
                lines.push(format!("address add 198.51.100.{n}/32 dev lo"));
                lines.push(format!("address delete 198.51.100.{n}/32 dev lo"));
            }
            lines.push(match (n + round) % 3 {
                0 => format!("route delete 10.0.{n}.0/24"),
                1 => format!("neighbour delete 10.0.{n}.0 dev tweed.1"),
                _ => format!("address add 10.9.9.{n}/32 dev tweed.1"),
            });
        }
        let before = dropped();
        batch(&lines.join("\n"));
        assert!(dropped() > before, "round {round}: nothing was lost");
        eventually(|| match picture() {
            now if now == whole => Ok(()),
            now => Err(format!("round {round} left\n{now}\nand not\n{whole}")),
        });
    }
    agent.ready();
}
