//! Notifications come faster than the agent reads them, into receive buffers that have
//! no room: the kernel drops them, and the agent looks at everything again.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;

use crate::node::{Node, address, batch, eventually, ip, picture, run};

const NODES: u32 = 40;
const ROUNDS: u32 = 6;

/// The numbers that netlink(7) gives rtnetlink and the netfilter subsystems.
const PROTOCOLS: [&str; 2] = ["0", "12"];

/// Maximum number of reconciles in a second in which nothing happens: there is a poll
/// each second and a resync in three.
const MAX_AT_REST: u64 = 4;

/// Objects of others, some of them with tweed's marks where these mean nothing.
const FOREIGN: [&str; 6] = [
    "link add foreign0 type veth peer name foreign1",
    "link set foreign1 up",
    "link set foreign0 up",
    "address add 203.0.113.1/24 dev foreign0",
    "route add 203.0.114.0/24 via 203.0.113.2 proto 116 table 99",
    "route add 203.0.115.0/24 via 203.0.113.2",
];

/// A row of `/proc/net/netlink` about a socket that listens to multicast groups.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listener {
    protocol: String,
    drops: u64,
    inode: String,
}

fn listeners() -> Vec<Listener> {
    let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let rows = sockets.lines().skip(1).filter_map(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
        let listens = PROTOCOLS.contains(&columns[1]) && columns[3] != "00000000";
        listens.then(|| Listener {
            protocol: columns[1].to_owned(),
            drops: columns[8].parse().unwrap(),
            inode: format!("socket:[{}]", columns[9]),
        })
    });
    rows.collect()
}

/// The agent's monitors. It is a thread of this process, so its descriptors are this
/// process's too.
fn monitors() -> Vec<RawFd> {
    let inodes: BTreeSet<String> = listeners().into_iter().map(|row| row.inode).collect();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors
        .filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            inodes.contains(&target.display().to_string())
        })
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

/// How many notifications of each protocol the kernel has dropped in this namespace.
fn dropped() -> [u64; 2] {
    PROTOCOLS.map(|protocol| {
        let rows = listeners().into_iter();
        let of_protocol = rows.filter(|row| row.protocol == protocol);
        of_protocol.map(|row| row.drops).sum()
    })
}

#[expect(unsafe_code, reason = "the agent keeps its socket for itself")]
fn shrink(monitor: RawFd) {
    // SAFETY: the agent that owns the descriptor lives as long as this test.
    let monitor = unsafe { BorrowedFd::borrow_raw(monitor) };
    // The kernel takes its minimum.
    setsockopt(&monitor, RcvBuf, &1).unwrap();
}

/// What comes and goes beside tweed's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Churn {
    /// Routes of others: what is said about one of them concerns nobody, so nothing is
    /// read again because of it.
    Routes,
    /// Links and addresses too: each of these makes the agent read something again.
    Links,
}

impl Churn {
    fn lines(self) -> String {
        let mut lines = Vec::new();
        for n in 1..=200 {
            lines.push(format!("route add 198.18.{n}.0/24 dev foreign0"));
            if self == Self::Links {
                lines.push(format!("address add 198.51.100.{n}/32 dev lo"));
                lines.push(format!("address delete 198.51.100.{n}/32 dev lo"));
            }
            lines.push(format!("route delete 198.18.{n}.0/24 dev foreign0"));
        }
        if self == Self::Links {
            lines.push("link add churn0 type veth peer name churn1".to_owned());
            lines.push("link set churn0 up".to_owned());
            lines.push("link delete churn0".to_owned());
        }
        lines.join("\n")
    }

    /// Leaves no room for what is said about tweed's objects, until it is stopped.
    fn run(self, stop: &AtomicBool) {
        let lines = self.lines();
        let elements: Vec<String> = (0..200).map(|n| format!("198.18.0.{n}")).collect();
        let table = format!(
            "table inet churn {{ set some {{ type ipv4_addr; elements = {{ {} }}; }}; }}",
            elements.join(", ")
        );
        while !stop.load(Ordering::Relaxed) {
            batch(&lines);
            for words in [table.as_str(), "delete table inet churn"] {
                let status = Command::new("nft").arg(words).status().unwrap();
                assert!(status.success(), "nft {words}: {status}");
            }
        }
    }
}

/// Ends the churn, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is tweed's, with the elements of its sets.
fn whole_picture() -> String {
    picture() + &run("nft", "-s list table inet tweed")
}

fn foreign_picture() -> String {
    [
        ip("-o link show dev foreign0"),
        ip("-o -4 address show dev foreign0"),
        ip("route show table 99"),
        ip("route show 203.0.115.0/24"),
        run("nft", "list table inet foreign"),
    ]
    .join("\n")
}

fn damage(round: u32) {
    let lines: Vec<String> = (2..=NODES)
        .map(|n| match (n + round) % 3 {
            0 => format!("route delete 10.0.{n}.0/24"),
            1 => format!("neighbour delete 10.0.{n}.0 dev tweed.1"),
            _ => format!("address add 10.9.9.{n}/32 dev tweed.1"),
        })
        .collect();
    batch(&lines.join("\n"));
    let n = round + 2;
    run(
        "nft",
        &format!("delete element inet tweed node_addresses4 {{ 192.0.2.{n} }}"),
    );
    run(
        "nft",
        "add element inet tweed cluster_cidrs4 { 203.0.113.0/24 }",
    );
}

fn converges_beside(churn: Churn) {
    let node = Node::new();
    node.list(1..=NODES);
    FOREIGN.iter().for_each(|line| drop(ip(line)));
    run("nft", "add table inet foreign");
    run("nft", "add chain inet foreign forward");
    let foreign = foreign_picture();
    let agent = node.start(&[]);
    agent.ready();
    let whole = whole_picture();
    let monitors = monitors();
    assert!(monitors.len() > 1, "the agent has these: {monitors:?}");
    monitors.into_iter().for_each(shrink);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn.run(&stop));
        let _stop = Stop(&stop);
        for round in 0..ROUNDS {
            let before = dropped();
            damage(round);
            eventually(|| match whole_picture() {
                now if now == whole => Ok(()),
                now => Err(format!("round {round} left\n{now}\nand not\n{whole}")),
            });
            eventually(|| match dropped() {
                now if now.iter().zip(before).all(|(now, before)| *now > before) => Ok(()),
                now => Err(format!("round {round} lost {before:?} to {now:?}")),
            });
        }
    });
    assert_eq!(foreign_picture(), foreign);
    agent.ready();
    rests(&agent);
}

#[test]
fn an_agent_that_loses_notifications_among_those_of_others_routes_converges() {
    converges_beside(Churn::Routes);
}

#[test]
fn an_agent_that_loses_notifications_among_those_of_links_and_addresses_converges() {
    converges_beside(Churn::Links);
}

/// Of its own large changes the agent is not notified, neither by the table's monitor nor by
/// that of other firewalls' tables.
#[test]
fn thousands_of_nodes_at_once_overrun_no_monitor_of_nf_tables() {
    let node = Node::routed();
    node.list(1..=NODES);
    let agent = node.start(&[]);
    agent.ready();
    agent.passes();
    node.list(1..=3_000);
    eventually(|| match run("nft", "list set inet tweed node_addresses4") {
        text if text.contains(&address(3_000)) => Ok(()),
        _ => Err("the last Node's address is not there".to_owned()),
    });
    agent.ready();
    assert_eq!(dropped()[1], 0);
}

/// Once nothing happens any more, the agent only polls.
fn rests(agent: &crate::node::Agent) {
    let reconciles = || agent.metric("tweed_reconcile_duration_seconds_count");
    agent.passes();
    let (before, start) = (reconciles(), Instant::now());
    agent.passes();
    let (count, seconds) = (reconciles() - before, start.elapsed().as_secs());
    assert!(
        count <= MAX_AT_REST * (seconds + 1),
        "{count} reconciles in {seconds} s without any change"
    );
}
