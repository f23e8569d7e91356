//! Every operation against the real kernel, each test in network namespaces of
//! its own, verified with another's eyes: `ip -j` and `bridge -j`. Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod conntrack;
mod links;
mod log;
mod monitor;
mod objects;
mod routes;

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use tweed_core::mac::Mac;
use tweed_netlink::link::VethEnd;
use tweed_netlink::{Socket, link};

/// Moves this thread, and with it the whole test, into a new namespace, which
/// goes when the test's thread ends.
fn new_namespace() -> File {
    unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root: they make network namespaces");
    File::open("/proc/thread-self/ns/net").unwrap()
}

/// A socket in a namespace of the test's own, which has the pair `h` and `p`.
fn new_namespace_with_pair() -> Socket {
    let namespace = new_namespace();
    let mut socket = Socket::open().unwrap();
    let pair = link::create_veth(
        &end("h", 1, 0, false),
        &end("p", 2, 0, false),
        namespace.as_fd(),
    );
    socket.execute(&pair).unwrap();
    socket
}

/// What a tool says inside this thread's namespace.
fn see(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Loads rules into this thread's namespace.
fn nft(rules: &str) {
    let status = Command::new("nft").arg(rules).status();
    assert!(status.unwrap().success(), "{rules}");
}

fn end(name: &str, last: u8, group: u32, noarp: bool) -> VethEnd {
    VethEnd {
        name: name.to_owned(),
        mac: Mac([2, 0, 0, 0, 0, last]),
        mtu: 1400,
        group,
        noarp,
    }
}
