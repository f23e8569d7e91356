//! The kernel's table of connections (conntrack), over ctnetlink
//! (`linux/netfilter/nfnetlink_conntrack.h`).
//!
//! [`Conntrack`] is the one entry point: it lists entries that the kernel selects by
//! their mark ([`MarkFilter`]), changes bits of an entry's mark, deletes exactly one
//! entry, and clears bits of marks ([`Conntrack::clear_marks`]).
//!
//! What always holds:
//! - Entries come and go at any time. One that is gone when it is to be changed or
//!   deleted is no error.
//! - Entries are handled while a dump arrives, some hundred at a time: the memory
//!   needed does not depend on the number of entries.
//! - Every deletion names a tuple: without one the kernel would delete all entries.

mod entry;

use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub use entry::{Entry, Ports, Tuple};

use super::attributes::Attributes;
use super::{FAMILY_ANY, Message, Request, Socket};
use crate::error::{Cause, Error};
use crate::socket::{DUMP_TRIES, Dump};

/// `NFNL_SUBSYS_CTNETLINK`.
const SUBSYSTEM: u16 = 1;
// enum cntl_msg_types
/// `IPCTNL_MSG_CT_NEW`.
const NEW: u8 = 0;
/// `IPCTNL_MSG_CT_GET`.
const GET: u8 = 1;
/// `IPCTNL_MSG_CT_DELETE`.
const DELETE: u8 = 2;

/// Maximum number of entries that are changed at once: what is kept of a dump while it
/// arrives is then less than 200 KiB.
pub(crate) const AT_ONCE: usize = 512;

/// Selects entries: those whose mark has, in the bits of `mask`, the value `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkFilter {
    /// The value of the bits in `mask`.
    pub value: u32,
    /// The bits that are compared; 0 selects every entry.
    pub mask: u32,
}

impl MarkFilter {
    /// Every entry.
    pub const ALL: Self = Self { value: 0, mask: 0 };

    /// The request for the entries that it selects.
    fn dump(self) -> Request {
        let attributes = match self.mask {
            // A dump without these attributes is one that every kernel has.
            0 => Attributes::new(),
            mask => Attributes::new()
                .number(entry::MARK, self.value & mask)
                .number(entry::MARK_MASK, mask),
        };
        let object = match self.mask {
            0 => "conntrack entries".to_owned(),
            mask => format!(
                "conntrack entries with the mark {:#x}/{mask:#x}",
                self.value
            ),
        };
        let message = Message::of(SUBSYSTEM, GET, FAMILY_ANY, attributes);
        Request::dump("list", object, message)
    }
}

/// What [`Conntrack::clear_marks`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Entries whose marks were changed.
    pub changed: usize,
    /// Entries that were gone before they could be changed.
    pub vanished: usize,
}

impl Cleared {
    fn add(&mut self, other: Self) {
        self.changed += other.changed;
        self.vanished += other.vanished;
    }
}

/// The table of connections of one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    /// Lists. Changes have a socket of their own, because their answers would come
    /// between the messages of a dump.
    pub(crate) listing: Socket,
    pub(crate) changing: Socket,
}

impl Conntrack {
    /// That of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            listing: Socket::open()?,
            changing: Socket::open()?,
        })
    }

    /// That of another network namespace.
    ///
    /// # Errors
    /// As [`Self::open`], and when the namespace cannot be entered.
    pub fn open_in(namespace: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self {
            listing: Socket::open_in(namespace)?,
            changing: Socket::open_in(namespace)?,
        })
    }

    /// Hands each entry that the kernel selects to `each`, while the dump arrives. If the
    /// dump is interrupted it begins again: an entry may then come twice.
    ///
    /// # Errors
    /// The kernel's refusal (one without ctnetlink gives `EINVAL`), a dump that was
    /// interrupted each time, or a socket that fails.
    pub fn list(&mut self, filter: MarkFilter, mut each: impl FnMut(Entry)) -> Result<(), Error> {
        let request = filter.dump();
        whole_dump(&mut self.listing, &request, |message| {
            if let Some(entry) = Entry::read(&message) {
                each(entry);
            }
        })
    }

    /// Sets the bits of `mask` in an entry's mark to those of `value`. Returns whether
    /// the entry was still there.
    ///
    /// # Errors
    /// The kernel's refusal, or a socket that fails.
    pub fn set_mark(&mut self, entry: &Entry, value: u32, mask: u32) -> Result<bool, Error> {
        was_there(self.changing.execute(&set_mark(entry, value, mask)))
    }

    /// Deletes this entry and no other: one that was made meanwhile for the same
    /// addresses and ports has another ID. Returns whether the entry was still there.
    ///
    /// # Errors
    /// The kernel's refusal, or a socket that fails.
    pub fn delete(&mut self, entry: &Entry) -> Result<bool, Error> {
        was_there(self.changing.execute(&delete(entry)))
    }

    /// Clears the bits of `bits` in the marks of all entries that `filter` selects; other
    /// bits stay. An entry that packets mark again meanwhile may keep what they set: who
    /// needs to be sure that none has a value must select a value that no rule sets now.
    ///
    /// All entries are tried, also after one was refused.
    ///
    /// # Errors
    /// As [`Self::list`], and the first refusal of a change.
    pub fn clear_marks(&mut self, filter: MarkFilter, bits: u32) -> Result<Cleared, Error> {
        let changing = &mut self.changing;
        let mut cleared = Cleared::default();
        let mut refused = None;
        let mut pending = Vec::with_capacity(AT_ONCE);
        let mut change = |pending: &mut Vec<Request>| match send_all(changing, pending) {
            Ok(more) => cleared.add(more),
            Err(error) => drop(refused.get_or_insert(error)),
        };
        let listed = whole_dump(&mut self.listing, &filter.dump(), |message| {
            let Some(entry) = Entry::read(&message) else {
                return;
            };
            // The kernel has compared already. A kernel that did not know the
            // filter would otherwise have every entry written.
            if entry.mark & bits == 0 || entry.mark & filter.mask != filter.value & filter.mask {
                return;
            }
            pending.push(set_mark(&entry, 0, bits));
            if pending.len() == AT_ONCE {
                change(&mut pending);
            }
        });
        change(&mut pending);
        match refused {
            Some(error) => Err(error),
            None => listed.map(|()| cleared),
        }
    }

    /// Clears the bits of `mask` in the marks of all entries that have any of them.
    ///
    /// The kernel's filter compares bits with one value, so there is one dump for each
    /// bit; entries without any of the bits never leave the kernel.
    ///
    /// # Errors
    /// As [`Self::clear_marks`].
    pub fn clear_mark_bits(&mut self, mask: u32) -> Result<Cleared, Error> {
        let mut cleared = Cleared::default();
        for bit in (0..u32::BITS).map(|shift| 1 << shift) {
            if mask & bit != 0 {
                let filter = MarkFilter {
                    value: bit,
                    mask: bit,
                };
                cleared.add(self.clear_marks(filter, mask)?);
            }
        }
        Ok(cleared)
    }
}

/// Dumps until a dump was not interrupted.
fn whole_dump(
    socket: &mut Socket,
    request: &Request,
    mut each: impl FnMut(Message),
) -> Result<(), Error> {
    for _ in 0..DUMP_TRIES {
        match socket.dump_once(request, &mut each)? {
            Dump::Whole => return Ok(()),
            Dump::Interrupted => {}
        }
    }
    Err(request.failed(Cause::Interrupted(DUMP_TRIES)))
}

/// Sends changes of entries and empties the list.
fn send_all(socket: &mut Socket, pending: &mut Vec<Request>) -> Result<Cleared, Error> {
    let answers = socket.batch(pending);
    pending.clear();
    let mut done = Cleared::default();
    let mut refused = None;
    for answer in answers? {
        match was_there(answer) {
            Ok(true) => done.changed += 1,
            Ok(false) => done.vanished += 1,
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    refused.map_or(Ok(done), Err)
}

fn was_there(answer: Result<(), Error>) -> Result<bool, Error> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The request that sets the bits of `mask` in an entry's mark. Without `NLM_F_CREATE`
/// the kernel changes only what exists.
fn set_mark(entry: &Entry, value: u32, mask: u32) -> Request {
    let attributes = entry
        .key()
        .number(entry::MARK, value & mask)
        .number(entry::MARK_MASK, mask);
    let message = Message::of(SUBSYSTEM, NEW, entry.family(), attributes);
    Request::change("mark", format!("conntrack entry {entry}"), message)
}

/// The request that deletes an entry.
pub fn delete(entry: &Entry) -> Request {
    let attributes = entry.key().number(entry::ID, entry.id);
    let message = Message::of(SUBSYSTEM, DELETE, entry.family(), attributes);
    Request::change("delete", format!("conntrack entry {entry}"), message)
}
