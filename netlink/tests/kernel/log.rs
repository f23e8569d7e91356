//! Packets that rules log, from the kernel to the listener.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tweed_netlink::nf::log::{LogGroup, Logged};

use crate::{new_namespace, nft, see};

const GROUP: u16 = 116;
const PORT: u16 = 5300;

/// A namespace that logs what comes to the port and drops it, and the replies from it.
fn namespace_that_logs() {
    new_namespace();
    see("ip link set lo up");
    nft(&format!(
        "table inet t {{ chain in {{ type filter hook input priority 0; \
         udp dport {PORT} ct direction original log prefix \"to: \" group {GROUP}; \
         udp sport {PORT} log prefix \"from: \" group {GROUP} drop; }}; }}"
    ));
}

/// The next packets. With none for ten seconds the test has failed.
fn packets(group: &mut LogGroup, count: usize) -> Vec<Logged> {
    let mut found = Vec::new();
    while found.len() < count {
        let mut ready = [PollFd::new(group.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ready, PollTimeout::from(10_000u16)), Ok(1));
        found.extend(group.drain().unwrap().packets);
    }
    found
}

#[test]
fn a_listener_gets_headers_and_prefix_of_each_packet() {
    namespace_that_logs();
    let mut group = LogGroup::open(GROUP).unwrap();
    for address in ["127.0.0.1", "::1"] {
        let server = UdpSocket::bind((address, PORT)).unwrap();
        let client = UdpSocket::bind((address, 0)).unwrap();
        client.send_to(&[7; 1000], (address, PORT)).unwrap();
        let mut buffer = [0; 2000];
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(b"answer", from).unwrap();

        let found = packets(&mut group, 2);
        let prefixes: Vec<&str> = found.iter().map(|logged| logged.prefix.as_str()).collect();
        assert_eq!(prefixes, ["to: ", "from: "]);
        assert_eq!(found[0].packet.len(), 128);
        assert!(found[1].packet.ends_with(b"answer"));
    }
    let nothing = group.drain().unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_group_has_one_listener_and_the_next_one_may_follow() {
    namespace_that_logs();
    let first = LogGroup::open(GROUP).unwrap();
    let error = LogGroup::open(GROUP).unwrap_err();
    assert!(LogGroup::is_taken(&error), "{error}");
    assert!(error.to_string().contains("log group 116"), "{error}");
    drop(LogGroup::open(GROUP + 1).unwrap());
    drop(first);
    // The kernel frees the group a moment after its listener has gone.
    while LogGroup::open(GROUP).is_err() {
        std::thread::yield_now();
    }
}
