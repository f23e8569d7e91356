//! Entries of the table of connections that vanish, dumps that are interrupted, and
//! more entries than are changed at once.

use super::*;
use tweed_core::family::Family;

use crate::nf::conntrack::{AT_ONCE, Conntrack, Entry, MarkFilter, Ports, ProtocolFilter, Walked};
use crate::nf::{Attributes, NfTables};

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_NEW`.
const ENTRY_MESSAGE: u16 = 1 << 8;
/// What each request is for: the number of its message.
const CHANGE: u8 = 0;
const DELETE: u8 = 2;

const FILTER: MarkFilter = MarkFilter {
    value: 0x8000_0000,
    mask: 0xf800_0000,
};

/// A UDP flow from this port, with this mark.
fn entry(port: u16, mark: u32, flags: u16, sequence: u32) -> Vec<u8> {
    let addresses = Attributes::new()
        .bytes(1, &[10, 0, 0, 1])
        .bytes(2, &[10, 0, 0, 2]);
    let protocol = Attributes::new()
        .bytes(1, &[17])
        .bytes(2, &port.to_be_bytes())
        .bytes(3, &[0, 53]);
    let tuple = Attributes::new().nested(1, &addresses).nested(2, &protocol);
    let attributes = Attributes::new()
        .nested(1, &tuple)
        .nested(2, &tuple)
        .number(8, mark);
    let payload = [&[2, 0, 0, 0], attributes.as_bytes()].concat();
    message(ENTRY_MESSAGE, flags, sequence, &payload)
}

fn conntrack() -> (Conntrack, Kernel, Kernel) {
    let (listing, lists) = socket_and_kernel::<NfTables>();
    let (changing, changes) = socket_and_kernel::<NfTables>();
    (Conntrack { listing, changing }, lists, changes)
}

/// The number of the message and the flags of each request so far.
fn requests(kernel: &Kernel) -> Vec<(u8, u16)> {
    let mut buffer = vec![0; 4 * RECEIVE_BUFFER];
    let mut found = Vec::new();
    while let Ok(length) = recv(kernel.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
        for message in messages(&buffer[..length]).map(Result::unwrap) {
            let header = NetlinkBuffer::new(message);
            let [_, number] = header.message_type().to_be_bytes();
            found.push((number, header.flags()));
        }
    }
    found
}

#[test]
fn an_entry_that_vanishes_before_its_mark_is_cleared_is_no_error() {
    let (mut table, lists, changes) = conntrack();
    let (mark, flags) = (FILTER.value, NLM_F_MULTIPART);
    lists.sends(&[entry(1, mark, flags, 1), entry(2, mark, flags, 1)]);
    lists.sends(&[entry(3, mark | 7, flags, 1), done(flags, 1)]);
    changes.sends(&[answer(Errno::ENOENT as i32, 2), answer(0, 3)]);
    let cleared = table.clear_marks(FILTER, FILTER.mask).unwrap();
    let expected = Walked {
        changed: 2,
        vanished: 1,
    };
    assert_eq!(cleared, expected);
    let asked = requests(&changes);
    assert_eq!(asked.len(), 3);
    // Without NLM_F_CREATE: what is gone must not be made again.
    let is_change = |(number, flags): &(u8, u16)| *number == CHANGE && flags & 0x400 == 0;
    assert!(asked.iter().all(is_change), "{asked:?}");
}

#[test]
fn entries_that_the_filter_does_not_select_are_left_alone() {
    let (mut table, lists, changes) = conntrack();
    let flags = NLM_F_MULTIPART;
    // As from a kernel that does not know the filter.
    lists.sends(&[entry(1, 0, flags, 1), entry(2, 7, flags, 1)]);
    lists.sends(&[entry(3, 0x1000_0000, flags, 1), done(flags, 1)]);
    let cleared = table.clear_marks(FILTER, FILTER.mask).unwrap();
    assert_eq!(cleared, Walked::default());
    assert_eq!(requests(&changes), []);
}

#[test]
fn a_refusal_is_reported_after_all_entries_were_tried_and_the_next_call_works() {
    let (mut table, lists, changes) = conntrack();
    let (mark, flags) = (FILTER.value, NLM_F_MULTIPART);
    lists.sends(&[entry(1, mark, flags, 1), entry(2, mark, flags, 1)]);
    lists.sends(&[done(flags, 1)]);
    changes.sends(&[answer(Errno::EPERM as i32, 1), answer(0, 2)]);
    let error = table.clear_marks(FILTER, FILTER.mask).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EPERM));
    assert!(error.to_string().contains("10.0.0.1:1 > 10.0.0.2:53"));
    assert_eq!(requests(&changes).len(), 2);

    lists.sends(&[answer(Errno::EPERM as i32, 2)]);
    let error = table.clear_marks(FILTER, FILTER.mask).unwrap_err();
    assert!(error.to_string().contains("0x80000000/0xf8000000"));
    lists.sends(&[done(flags, 3)]);
    assert!(table.clear_marks(FILTER, FILTER.mask).is_ok());
}

/// The first are changed while the rest of the dump has not been read.
#[test]
fn entries_are_changed_while_the_dump_arrives() {
    let (mut table, lists, changes) = conntrack();
    let (mark, flags) = (FILTER.value, NLM_F_MULTIPART);
    let ports: Vec<u16> = (1..=600).collect();
    for chunk in ports.chunks(200) {
        let entries: Vec<_> = chunk.iter().map(|p| entry(*p, mark, flags, 1)).collect();
        lists.sends(&entries);
    }
    lists.sends(&[answer(Errno::EIO as i32, 1)]);
    for last in [128, 256, 384, 512, 600] {
        changes.sends(&[answer(0, last)]);
    }
    let error = table.clear_marks(FILTER, FILTER.mask).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EIO));
    let asked = requests(&changes).len();
    assert!(asked >= AT_ONCE, "{asked}");
}

#[test]
fn all_bits_of_a_mask_are_cleared_by_one_dump_for_each() {
    let (mut table, lists, changes) = conntrack();
    let flags = NLM_F_MULTIPART;
    lists.sends(&[entry(1, 0x0800_0000, flags, 1), done(flags, 1)]);
    for sequence in 2..=5 {
        lists.sends(&[done(flags, sequence)]);
    }
    changes.sends(&[answer(0, 1)]);
    assert_eq!(table.clear_mark_bits(FILTER.mask).unwrap().changed, 1);
    assert_eq!(requests(&lists).len(), 5);
}

fn is_odd(entry: &Entry) -> bool {
    matches!(entry.original.ports, Ports::Pair(port, _) if port % 2 == 1)
}

/// The entries that had come before were deleted, and the others are found then.
#[test]
fn entries_are_deleted_though_their_dump_is_interrupted() {
    let (mut table, lists, changes) = conntrack();
    let (interrupted, flags) = (NLM_F_MULTIPART | NLM_F_DUMP_INTR, NLM_F_MULTIPART);
    let udp = ProtocolFilter {
        family: Family::V4,
        protocol: 17,
        unanswered: false,
    };
    lists.sends(&[entry(1, 0, flags, 1), entry(2, 0, flags, 1)]);
    lists.sends(&[entry(3, 0, interrupted, 1), done(flags, 1)]);
    lists.sends(&[entry(3, 0, flags, 2), entry(5, 0, flags, 2)]);
    lists.sends(&[done(flags, 2)]);
    changes.sends(&[answer(Errno::ENOENT as i32, 3), answer(0, 4)]);
    let walked = table.delete_all_that(udp, is_odd).unwrap();
    let expected = Walked {
        changed: 3,
        vanished: 1,
    };
    assert_eq!(walked, expected);
    let asked = requests(&changes);
    assert_eq!(asked.len(), 4, "{asked:?}");
    assert!(asked.iter().all(|(number, _)| *number == DELETE));
    assert_eq!(requests(&lists).len(), 2);

    // A kernel that does not know the filter.
    let tcp = ProtocolFilter { protocol: 6, ..udp };
    lists.sends(&[entry(1, 0, flags, 3), done(flags, 3)]);
    let walked = table.delete_all_that(tcp, |_| true).unwrap();
    assert_eq!((walked, requests(&changes).len()), (Walked::default(), 0));
}

#[test]
fn a_dump_that_is_always_interrupted_is_an_error() {
    let (mut table, lists, changes) = conntrack();
    let udp = ProtocolFilter {
        family: Family::V4,
        protocol: 17,
        unanswered: false,
    };
    for sequence in 1..=DUMP_TRIES {
        lists.sends(&[done(NLM_F_MULTIPART | NLM_F_DUMP_INTR, sequence)]);
    }
    let error = table.delete_all_that(udp, |_| true).unwrap_err();
    let expected = "list conntrack entries of IPv4 with protocol 17";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(requests(&changes), []);
}
