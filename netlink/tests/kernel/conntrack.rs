//! The table of connections, with flows of the test's own over the loopback device.

use std::net::{TcpListener, TcpStream, UdpSocket};

use tweed_core::family::Family;
use tweed_netlink::nf::Socket;
use tweed_netlink::nf::conntrack::{
    self, Conntrack, Entry, MarkFilter, Ports, ProtocolFilter, Walked,
};

use crate::{new_namespace, nft, see};

/// The bits that the tests use as policy does, and others that are not theirs.
const BITS: u32 = 0xf800_0000;
const OTHERS: u32 = 0x0000_0116;

/// A namespace in which every connection is tracked and its destination port is a part
/// of its mark, with flows of both families.
struct Flows {
    table: Conntrack,
    _tcp: (TcpListener, TcpStream),
}

/// Destination ports, and the generation in the mark of each.
const TCP: (u16, u32) = (8000, 1);
const UDP: [(u16, u32); 3] = [(5301, 1), (5302, 2), (5303, 31)];

impl Flows {
    fn start() -> Self {
        new_namespace();
        see("ip link set lo up");
        let mark = |protocol: &str, (port, generation): (u16, u32)| {
            let mark = generation << 27 | OTHERS;
            format!("{protocol} dport {port} ct direction original ct mark set {mark:#x};")
        };
        let rules: Vec<String> = (UDP.map(|flow| mark("udp", flow)).into_iter())
            .chain([mark("tcp", TCP)])
            .collect();
        nft(&format!(
            "table inet t {{ chain raw {{ type filter hook prerouting priority raw; \
             iifname lo udp sport 6000 ct zone set 7; }}; \
             chain in {{ type filter hook input priority 0; {} }}; \
             chain out {{ type filter hook output priority raw; \
             udp sport 6000 ct zone set 7; }}; }}",
            rules.concat()
        ));
        for (port, _) in UDP {
            for address in ["127.0.0.1", "::1"] {
                let socket = UdpSocket::bind((address, 0)).unwrap();
                let server = UdpSocket::bind((address, port)).unwrap();
                socket.send_to(b"x", (address, port)).unwrap();
                drop((socket, server));
            }
        }
        let listener = TcpListener::bind(("127.0.0.1", TCP.0)).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", TCP.0)).unwrap();
        Self {
            table: Conntrack::open().unwrap(),
            _tcp: (listener, stream),
        }
    }

    fn list(&mut self, value: u32, mask: u32) -> Vec<Entry> {
        let mut entries = Vec::new();
        let filter = MarkFilter { value, mask };
        self.table
            .list(filter, |entry| entries.push(entry))
            .unwrap();
        entries
    }
}

/// What the program `conntrack` lists: one line for each entry.
fn listed(arguments: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let shown = see(&format!("conntrack -L -f {family} {arguments}"));
        lines.extend(shown.lines().map(str::to_owned));
    }
    lines
}

/// Deletes exactly this entry; false if it is not there.
fn delete(entry: &Entry) -> bool {
    let deleted = Socket::open().unwrap().execute(&conntrack::delete(entry));
    if let Err(error) = &deleted {
        assert!(error.is_absent(), "{error}");
    }
    deleted.is_ok()
}

fn destination_port(entry: &Entry) -> Option<u16> {
    match entry.original.ports {
        Ports::Pair(_, port) => Some(port),
        _ => None,
    }
}

#[test]
fn the_kernel_selects_entries_by_the_bits_of_their_mark() {
    let mut flows = Flows::start();
    let all = flows.list(0, 0);
    assert_eq!(all.len(), listed("").len());
    assert_eq!(all.len(), 7, "{all:?}");
    for (generation, count) in [(1, 3), (2, 2), (31, 2), (4, 0)] {
        let found = flows.list(generation << 27, BITS);
        assert_eq!(found.len(), count, "{found:?}");
        let shown = listed(&format!("-m {:#x}/{BITS:#x}", generation << 27));
        assert_eq!(shown.len(), count, "{shown:?}");
        assert!(
            found
                .iter()
                .all(|entry| entry.mark == generation << 27 | OTHERS)
        );
    }
    let tcp = all.iter().find(|one| one.original.protocol == 6).unwrap();
    assert_eq!(destination_port(tcp), Some(TCP.0));
    assert_eq!(tcp.reply.source, tcp.original.destination);
    // IPS_CONFIRMED, IPS_ASSURED and IPS_SEEN_REPLY.
    assert_eq!(tcp.status & 0b1110, 0b1110);
    let shown = listed("-p tcp -o id");
    assert!(shown[0].contains(&format!("id={}", tcp.id)), "{shown:?}");
}

#[test]
fn marks_are_cleared_and_the_bits_of_others_stay() {
    let mut flows = Flows::start();
    let filter = MarkFilter {
        value: 1 << 27,
        mask: BITS,
    };
    let three = Walked {
        changed: 3,
        vanished: 0,
    };
    assert_eq!(flows.table.clear_marks(filter, BITS).unwrap(), three);
    assert_eq!(flows.list(0, BITS).len(), 3);
    assert_eq!(flows.list(0, BITS)[0].mark, OTHERS);
    assert_eq!(flows.list(2 << 27, BITS).len(), 2);

    assert_eq!(flows.table.clear_mark_bits(BITS).unwrap().changed, 4);
    let marks: Vec<u32> = flows.list(0, 0).iter().map(|entry| entry.mark).collect();
    assert_eq!(marks, [OTHERS; 7]);
    assert_eq!(listed(&format!("-m {OTHERS}")).len(), 7);
    let none = Walked::default();
    assert_eq!(flows.table.clear_mark_bits(BITS).unwrap(), none);
}

#[test]
fn exactly_one_entry_is_deleted() {
    let mut flows = Flows::start();
    for protocol in [6, 17] {
        let all = flows.list(0, 0);
        let is_one = |entry: &&Entry| entry.original.protocol == protocol;
        let entry = *all.iter().find(is_one).unwrap();
        // A later entry of the same addresses and ports has another ID.
        let later = Entry {
            id: entry.id ^ 1,
            ..entry
        };
        assert!(!delete(&later));
        assert_eq!(flows.list(0, 0).len(), all.len());
        assert!(delete(&entry));
        let mut expected = all;
        expected.retain(|one| one.id != entry.id);
        assert_eq!(ids(&flows.list(0, 0)), ids(&expected));
        assert!(!delete(&entry));
    }
}

/// The kernel's own selection is seen by what the condition is asked for.
#[test]
fn entries_of_a_protocol_and_family_are_deleted_where_a_condition_holds() {
    let mut flows = Flows::start();
    let before = flows.list(0, 0);
    for family in [Family::V4, Family::V6] {
        let is_port = |entry: &Entry| destination_port(entry) == Some(UDP[1].0);
        let filter = ProtocolFilter {
            family,
            protocol: 17,
            unanswered: false,
        };
        let mut asked = Vec::new();
        let walked = flows.table.delete_all_that(filter, |entry| {
            asked.push(*entry);
            is_port(entry)
        });
        let one = Walked {
            changed: 1,
            vanished: 0,
        };
        assert_eq!(walked.unwrap(), one);
        let is_selected = |entry: &Entry| {
            entry.original.protocol == 17 && Family::of(entry.original.source) == family
        };
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert!(asked.iter().all(is_selected), "{asked:?}");
        let walked = flows.table.delete_all_that(filter, is_port).unwrap();
        assert_eq!(walked, Walked::default());
    }
    let mut expected = before;
    expected.retain(|entry| destination_port(entry) != Some(UDP[1].0));
    assert_eq!(ids(&flows.list(0, 0)), ids(&expected));
}

/// The kernel selects those from 5.17 on. None of UDP has been answered, and that of TCP has.
#[test]
fn connections_that_somebody_has_answered_can_be_left_alone() {
    let mut flows = Flows::start();
    let before = flows.list(0, 0);
    let mut asked = 0;
    for (protocol, count) in [(6, 0), (17, 3)] {
        let filter = ProtocolFilter {
            family: Family::V4,
            protocol,
            unanswered: true,
        };
        let walked = flows.table.delete_all_that(filter, |entry| {
            assert!(!entry.is_answered(), "{entry:?}");
            asked += 1;
            true
        });
        assert_eq!(walked.unwrap().changed, count);
    }
    assert_eq!((asked, flows.list(0, 0).len()), (3, before.len() - 3));
}

/// Whether it begins them or answers, also if they are sent to another address.
#[test]
fn the_entries_of_an_address_are_deleted_and_no_others() {
    let mut flows = Flows::start();
    let before = flows.list(0, 0);
    for (own, peer, service) in [
        ("10.0.0.5", "192.0.2.9", "10.96.0.1"),
        ("fd00::5", "2001:db8::9", "fd00:96::1"),
    ] {
        for (port, tuples) in [
            (1, format!("-s {own} -d {peer}")),
            (2, format!("-s {peer} -d {own}")),
            (3, format!("-s {peer} -d {service} -r {own} -q {peer}")),
        ] {
            let ports =
                format!("--sport {port} --dport 53 --reply-port-src 53 --reply-port-dst {port}");
            see(&format!("conntrack -I -p udp {tuples} {ports} -t 3600"));
        }
        assert_eq!(flows.list(0, 0).len(), before.len() + 3);
        let walked = flows.table.delete_all_of(own.parse().unwrap()).unwrap();
        assert_eq!(walked.changed, 3);
        assert_eq!(ids(&flows.list(0, 0)), ids(&before));
    }
}

fn ids(entries: &[Entry]) -> std::collections::BTreeSet<u32> {
    entries.iter().map(|entry| entry.id).collect()
}

#[test]
fn entries_of_a_zone_and_of_icmp_are_named_as_such() {
    let mut flows = Flows::start();
    let client = UdpSocket::bind("127.0.0.1:6000").unwrap();
    let _server = UdpSocket::bind("127.0.0.1:5304").unwrap();
    client.send_to(b"x", "127.0.0.1:5304").unwrap();
    see("ping -c 1 127.0.0.1");
    see("ping -c 1 ::1");
    let all = flows.list(0, 0);
    let zone = *all.iter().find(|entry| entry.zone == 7).unwrap();
    assert_eq!(destination_port(&zone), Some(5304));
    let icmp: Vec<Entry> = (all.into_iter())
        .filter(|entry| matches!(entry.original.ports, Ports::Icmp { .. }))
        .collect();
    assert_eq!(icmp.len(), 2);
    let elsewhere = Entry { zone: 0, ..zone };
    assert!(!delete(&elsewhere));
    for entry in icmp.into_iter().chain([zone]) {
        assert!(delete(&entry), "{entry}");
    }
    assert_eq!(flows.list(0, 0).len(), 7);
}
