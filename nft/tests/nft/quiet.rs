//! Of a large change nobody is notified. What others change meanwhile is noticed all the
//! same.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tweed_netlink::nf::object::{DELETE_ELEMENTS, SET_NAME};
use tweed_netlink::nf::{Attributes, Monitor, Notification, Socket, Transaction};
use tweed_nft::TABLE;

use crate::node::{NOTHING, Node, cluster};

/// So many Nodes more bring three times as many elements.
const MANY: u32 = 6_000;

/// Maximum time until a vandal has come while the monitors had left.
const LIMIT: Duration = Duration::from_secs(60);

/// A node with a table, and with another monitor in its namespace.
fn node() -> (Node, Arc<Mutex<Monitor>>) {
    let node = Node::new();
    node.reconcile(&cluster(3));
    let other = node.with(|table| {
        let other = Monitor::open().unwrap();
        table.nft.pause_with(Some(other.membership()));
        other
    });
    (node, Arc::new(Mutex::new(other)))
}

#[test]
fn a_large_change_is_news_to_nobody_and_what_comes_after_it_is() {
    let (node, other) = node();
    assert_eq!(node.reconcile(&cluster(MANY)).repaired, 0);
    assert!(!node.due());
    assert_eq!(other.lock().unwrap().drain().unwrap(), []);
    node.host.sh("nft flush set inet tweed cluster_cidrs4");
    assert!(node.due());
    assert!(!other.lock().unwrap().drain().unwrap().is_empty());
}

/// The set is emptied while the monitors have left. Where that comes so late that they hear
/// of it, the vandal tries again.
#[test]
fn what_others_change_during_a_large_change_is_put_back() {
    let (node, other) = node();
    let start = Instant::now();
    let mut sizes = [MANY, 3].into_iter().cycle();
    let mut lost = 0;
    while lost < 2 {
        assert!(start.elapsed() < LIMIT, "the vandal was heard each time");
        let monitor = node.with(|table| table.as_fd().try_clone_to_owned().unwrap());
        let vandal = node.host.run(move || {
            let mut socket = Socket::open().unwrap();
            thread::spawn(move || {
                wait_until_it_has_left(&monitor);
                socket.commit(&emptying("local_cidrs4")).unwrap();
            })
        });
        let mut nodes = 3;
        while !vandal.is_finished() {
            nodes = sizes.next().unwrap();
            node.reconcile(&cluster(nodes));
        }
        vandal.join().unwrap();
        let heard = other.lock().unwrap().drain().unwrap();
        lost += usize::from(heard.contains(&Notification::Overflow));
        node.reconcile(&cluster(nodes));
        let set = node.host.sh("nft list set inet tweed local_cidrs4");
        assert!(set.contains("10.0.1.0/24"), "{set}");
        assert_eq!(node.reconcile(&cluster(nodes)), NOTHING);
    }
}

fn emptying(set: &str) -> Transaction {
    let mut transaction = Transaction::new(set);
    let name = Attributes::new().text(SET_NAME, set);
    transaction.delete(TABLE.message(DELETE_ELEMENTS, name));
    transaction
}

/// Waits until a netlink socket listens to no multicast group any more.
fn wait_until_it_has_left(socket: &impl AsRawFd) {
    let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
    let link = fs::read_link(link).unwrap().display().to_string();
    let inode = link.trim_matches(|c: char| !c.is_ascii_digit());
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
        let mut rows = sockets.lines().map(str::split_whitespace);
        // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
        let own = rows.find(|row| row.clone().nth(9) == Some(inode));
        if own.unwrap().nth(3) == Some("00000000") {
            return;
        }
    }
    panic!("the monitor has not left its groups");
}
