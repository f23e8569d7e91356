//! Requests to nf_tables that are refused: each kind that tweed sends.

use nix::errno::Errno;

use super::*;
use crate::nf::object::{self, DELETE_ELEMENTS, NEW_ELEMENTS, SET_NAME, TableKey};
use crate::nf::{Attributes, FAMILY_INET, NfTables, Transaction};

/// `NFNL_SUBSYS_NFTABLES`, `NFT_MSG_NEWSETELEM`.
const ELEMENTS_MESSAGE: u16 = 10 << 8 | 12;

/// What the kernel answers to a transaction that it is to do again
/// (`ERESTART`, which no `errno.h` of users has).
const ERESTART: i32 = 85;

const TABLE: TableKey<'_> = TableKey {
    family: FAMILY_INET,
    name: "tweed",
};

/// Sends a request and returns its error.
type Ask = Box<dyn Fn(&mut Socket<NfTables>) -> Result<(), Error>>;

fn elements_of(number: u8, set: &str) -> crate::nf::Message {
    TABLE.message(number, Attributes::new().text(SET_NAME, set))
}

/// Two sets are filled, and two emptied.
fn transaction() -> Transaction {
    let mut transaction = Transaction::new("the elements of table inet tweed");
    for set in ["a", "b"] {
        transaction.create(elements_of(NEW_ELEMENTS, set));
        transaction.delete(elements_of(DELETE_ELEMENTS, set));
    }
    transaction
}

/// Each kind of request that asks for something, with what its error has to name.
fn questions() -> Vec<(&'static str, Ask)> {
    vec![
        ("table inet tweed", Box::new(|s| TABLE.get(s).map(drop))),
        (
            "chain raw of table inet tweed",
            Box::new(|s| TABLE.chain(s, "raw").map(drop)),
        ),
        (
            "the rules of table inet tweed",
            Box::new(|s| TABLE.rules(s, None).map(drop)),
        ),
        (
            "the rules of chain raw of table inet tweed",
            Box::new(|s| TABLE.rules(s, Some("raw")).map(drop)),
        ),
        (
            "the sets of table inet tweed",
            Box::new(|s| TABLE.sets(s).map(drop)),
        ),
        (
            "the elements of set a of table inet tweed",
            Box::new(|s| TABLE.elements(s, "a").map(drop)),
        ),
        (
            "the chains of all tables",
            Box::new(|s| object::chains(s).map(drop)),
        ),
        (
            "the ruleset's generation",
            Box::new(|s| object::generation(s).map(drop)),
        ),
    ]
}

/// The kernel answers the next dump with one set of elements.
fn assert_next_works(socket: &mut Socket<NfTables>, kernel: &Kernel, when: &str) {
    let next = socket.sequence + 1;
    kernel.sends(&[elements(NLM_F_MULTIPART, next), done(NLM_F_MULTIPART, next)]);
    let found = TABLE.elements(socket, "a").unwrap();
    assert_eq!(found.len(), 1, "{when}");
}

fn elements(flags: u16, sequence: u32) -> Vec<u8> {
    message(ELEMENTS_MESSAGE, flags, sequence, &[FAMILY_INET, 0, 0, 0])
}

fn assert_names(error: &Error, object: &str, errno: i32) {
    assert_eq!(error.object, object);
    let text = error.to_string();
    assert!(text.contains(object), "{text}");
    let expected = Errno::from_raw(errno);
    assert_eq!(error.errno(), Some(expected), "{object}: {text}");
}

#[test]
fn each_kind_of_question_reports_each_error_and_the_next_request_works() {
    let (mut socket, kernel) = socket_and_kernel::<NfTables>();
    for errno in [Errno::EPERM, Errno::ENOMEM, Errno::ENOBUFS, Errno::EBUSY] {
        for (object, ask) in questions() {
            kernel.sends(&[answer(errno as i32, socket.sequence + 1)]);
            let error = ask(&mut socket).unwrap_err();
            assert_names(&error, object, errno as i32);
            assert_next_works(&mut socket, &kernel, object);
        }
    }
}

/// A table that somebody deletes is nothing to report.
#[test]
fn what_is_not_there_is_no_error() {
    let (mut socket, kernel) = socket_and_kernel::<NfTables>();
    for (object, ask) in questions() {
        kernel.sends(&[answer(Errno::ENOENT as i32, socket.sequence + 1)]);
        assert!(ask(&mut socket).is_ok(), "{object}");
    }
}

/// Whichever of its messages the kernel refuses, or the transaction as a whole.
#[test]
fn a_transaction_that_is_refused_names_its_object_and_the_next_request_works() {
    let (mut socket, kernel) = socket_and_kernel::<NfTables>();
    let transaction = transaction();
    for errno in [
        Errno::EPERM as i32,
        Errno::ENOMEM as i32,
        Errno::EBUSY as i32,
        Errno::EINTR as i32,
        Errno::EAGAIN as i32,
        Errno::EEXIST as i32,
        ERESTART,
    ] {
        for refused in 0..=transaction.len() {
            let first = socket.sequence + 1;
            kernel.sends(&[answer(errno, first + u32::try_from(refused).unwrap())]);
            // The kernel goes on, and finds more.
            kernel.sends(&[answer(
                Errno::ENOSPC as i32,
                first + u32::try_from(transaction.len()).unwrap(),
            )]);
            let error = socket.commit(&transaction).unwrap_err();
            assert_names(&error, "the elements of table inet tweed", errno);
            assert_next_works(&mut socket, &kernel, &format!("{errno} at {refused}"));
        }
    }
    assert_eq!(
        socket.changes_sent() as usize,
        transaction.len() * 7 * (transaction.len() + 1)
    );
}
