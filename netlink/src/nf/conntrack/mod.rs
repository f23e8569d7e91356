//! The kernel's table of connections (conntrack), over ctnetlink
//! (`linux/netfilter/nfnetlink_conntrack.h`).
//!
//! [`Conntrack`] is the one entry point: it lists entries that the kernel selects by
//! their mark ([`MarkFilter`]) or protocol ([`ProtocolFilter`]), and walks through the entries
//! to clear bits of marks ([`Conntrack::clear_marks`]) or to delete some of them
//! ([`Conntrack::delete_all_that`], [`Conntrack::delete_all_of`]).
//!
//! What always holds:
//! - Entries come and go at any time. One that is gone when it is to be changed or
//!   deleted is no error.
//! - Entries are handled while a dump arrives, some hundred at a time: the memory
//!   needed does not depend on the number of entries.
//! - Every deletion names a tuple: without one the kernel would delete all entries.

mod entry;

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use tweed_core::family::Family;

pub use entry::{Entry, Ports, Tuple};

use super::attributes::Attributes;
use super::{FAMILY_ANY, FAMILY_IPV4, FAMILY_IPV6, Message, Request, Socket};
use crate::error::Error;

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

/// Selects the entries of one family whose packets have, as they come, this protocol.
/// Kernels have this filter from Linux 5.8 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolFilter {
    /// The family of the entry's addresses.
    pub family: Family,
    /// The number of the protocol.
    pub protocol: u8,
    /// Whether it selects only those that nobody has answered.
    pub unanswered: bool,
}

impl ProtocolFilter {
    /// The request for the entries that it selects.
    fn dump(self) -> Request {
        let Self {
            family, protocol, ..
        } = self;
        let mut attributes = entry::with_protocol(protocol);
        if self.unanswered {
            attributes = entry::unanswered(attributes);
        }
        let message = Message::of(SUBSYSTEM, GET, family_number(family), attributes);
        let object = format!("conntrack entries of {family} with protocol {protocol}");
        Request::dump("list", object, message)
    }

    /// Whether it selects this entry.
    fn selects(self, entry: &Entry) -> bool {
        let original = &entry.original;
        original.protocol == self.protocol
            && Family::of(original.source) == self.family
            && !(self.unanswered && entry.is_answered())
    }
}

/// What a walk through the table has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Entries that were changed or deleted.
    pub changed: usize,
    /// Entries that were gone before that.
    pub vanished: usize,
}

impl Walked {
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

impl AsRawFd for Conntrack {
    /// The socket for lists.
    fn as_raw_fd(&self) -> RawFd {
        self.listing.as_raw_fd()
    }
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

    /// Hands each entry that the kernel selects to `each`, while the dump arrives. If the
    /// dump is interrupted it begins again: an entry may then come twice.
    ///
    /// # Errors
    /// The kernel's refusal (one without ctnetlink gives `EINVAL`), a dump that was
    /// interrupted each time, or a socket that fails.
    pub fn list(&mut self, filter: MarkFilter, mut each: impl FnMut(Entry)) -> Result<(), Error> {
        self.listing.dump_each(&filter.dump(), |message| {
            if let Some(entry) = Entry::read(&message) {
                each(entry);
            }
        })
    }

    /// Clears the bits of `bits` in the marks of all entries that `filter` selects; other
    /// bits stay. An entry that packets mark again meanwhile may keep what they set: who
    /// needs to be sure that none has a value must select a value that no rule sets now.
    ///
    /// All entries are tried, also after one was refused.
    ///
    /// # Errors
    /// As [`Self::list`], and the first refusal of a change.
    pub fn clear_marks(&mut self, filter: MarkFilter, bits: u32) -> Result<Walked, Error> {
        let MarkFilter { value, mask } = filter;
        self.walk(&filter.dump(), |entry| {
            // The kernel has compared already. A kernel that did not know the
            // filter would otherwise have every entry written.
            let selected = entry.mark & bits != 0 && entry.mark & mask == value & mask;
            selected.then(|| clear_mark(entry, bits))
        })
    }

    /// Deletes the entries that `filter` selects and of which `condition` holds. Entries that
    /// come meanwhile may be missed; an entry may be asked for twice.
    ///
    /// All entries are tried, also after one was refused.
    ///
    /// # Errors
    /// As [`Self::list`], and the first refusal of a deletion.
    pub fn delete_all_that(
        &mut self,
        filter: ProtocolFilter,
        mut condition: impl FnMut(&Entry) -> bool,
    ) -> Result<Walked, Error> {
        self.walk(&filter.dump(), |entry| {
            let selected = filter.selects(entry) && condition(entry);
            selected.then(|| delete(entry))
        })
    }

    /// Deletes the entries of all flows that an address has begun or answers, whatever address
    /// they were sent to. All entries of its family are listed: the kernel could select those of
    /// an address, but of IPv6 it selects those of all others (Linux 5.8 to 6.18).
    ///
    /// # Errors
    /// As [`Self::delete_all_that`].
    pub fn delete_all_of(&mut self, address: IpAddr) -> Result<Walked, Error> {
        let family = family_number(Family::of(address));
        let message = Message::of(SUBSYSTEM, GET, family, Attributes::new());
        let request = Request::dump("list", format!("conntrack entries of {address}"), message);
        self.walk(&request, |entry| {
            let sources = [entry.original.source, entry.reply.source];
            sources.contains(&address).then(|| delete(entry))
        })
    }

    /// Sends what `change` makes of the entries of a dump, while it arrives.
    fn walk(
        &mut self,
        request: &Request,
        mut change: impl FnMut(&Entry) -> Option<Request>,
    ) -> Result<Walked, Error> {
        let changing = &mut self.changing;
        let mut walked = Walked::default();
        let mut refused = None;
        let mut pending = Vec::with_capacity(AT_ONCE);
        let mut send = |pending: &mut Vec<Request>| match send_all(changing, pending) {
            Ok(more) => walked.add(more),
            Err(error) => drop(refused.get_or_insert(error)),
        };
        let listed = self.listing.dump_each(request, |message| {
            pending.extend(Entry::read(&message).and_then(|entry| change(&entry)));
            if pending.len() == AT_ONCE {
                send(&mut pending);
            }
        });
        send(&mut pending);
        match refused {
            Some(error) => Err(error),
            None => listed.map(|()| walked),
        }
    }

    /// Clears the bits of `mask` in the marks of all entries that have any of them.
    ///
    /// The kernel's filter compares bits with one value, so there is one dump for each
    /// bit; entries without any of the bits never leave the kernel.
    ///
    /// # Errors
    /// As [`Self::clear_marks`].
    pub fn clear_mark_bits(&mut self, mask: u32) -> Result<Walked, Error> {
        let mut cleared = Walked::default();
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

/// `NFPROTO_…`.
fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => FAMILY_IPV4,
        Family::V6 => FAMILY_IPV6,
    }
}

/// Sends changes of entries and empties the list.
fn send_all(socket: &mut Socket, pending: &mut Vec<Request>) -> Result<Walked, Error> {
    let answers = socket.batch(pending);
    pending.clear();
    let mut done = Walked::default();
    let mut refused = None;
    for answer in answers? {
        match answer {
            Ok(()) => done.changed += 1,
            Err(error) if error.errno() == Some(Errno::ENOENT) => done.vanished += 1,
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    refused.map_or(Ok(done), Err)
}

/// The request that clears these bits in an entry's mark. Without `NLM_F_CREATE` the kernel
/// changes only what exists.
fn clear_mark(entry: &Entry, bits: u32) -> Request {
    let attributes = entry
        .key()
        .number(entry::MARK, 0)
        .number(entry::MARK_MASK, bits);
    let message = Message::of(SUBSYSTEM, NEW, entry.family(), attributes);
    Request::change("mark", format!("conntrack entry {entry}"), message)
}

/// The request that deletes an entry and no other: one that was made meanwhile for the same
/// addresses and ports has another ID.
pub fn delete(entry: &Entry) -> Request {
    let attributes = entry.key().number(entry::ID, entry.id);
    let message = Message::of(SUBSYSTEM, DELETE, entry.family(), attributes);
    Request::change("delete", format!("conntrack entry {entry}"), message)
}
