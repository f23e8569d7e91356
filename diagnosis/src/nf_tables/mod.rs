//! Tables of others that drop what pods send or get, or the VXLAN packets of the
//! overlay, or that translate flows between pods. The tables of tweed cannot overrule them, so they are named, with the
//! cure. Only read, never written.
//!
//! The way of the data: [`Drops`] reads nf_tables' notifications, and only if one of
//! them concerns a chain that such packets pass through does it look at the chains
//! again. [`chains`] finds those at the hooks forward, input, output and postrouting,
//! and has [`crate::walk`] send an imaginary packet through them; [`rule`] says what each rule
//! does with it.
//!
//! The old iptables (`iptables-legacy`) is no part of nf_tables:
//! [`crate::iptables_legacy`].

mod chains;
mod packet;
mod registers;
mod rule;
mod set;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use tweed_core::problem::Problem;
use tweed_netlink::nf::object::{
    CHAIN_NAME, CHAIN_TYPE, DELETE_CHAIN, DELETE_RULE, NEW_CHAIN, NEW_RULE, NEW_TABLE, RULE_CHAIN,
    TABLE_NAME,
};
use tweed_netlink::nf::{Membership, Message, Monitor, Notification, Socket};
use tweed_netlink::{Error, owned};

use crate::probe::{Hook, Packets};
use chains::ChainName;
pub use chains::Ruleset;

/// What other tables drop, for one network namespace.
pub struct Drops {
    socket: Socket,
    monitor: Monitor,
    /// Whether the chains may have changed since they were looked at.
    changed: bool,
    /// The chains that the packets pass through. Not whole tables: that of Services
    /// has a chain for each, and changes all the time.
    watched: BTreeSet<ChainName>,
    /// The packets that they were asked about.
    packets: Packets,
    /// What was found when they were looked at.
    problems: Vec<Problem>,
}

impl Drops {
    /// Opens the sockets, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no such socket.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            socket: Socket::open()?,
            monitor: Monitor::open()?,
            changed: true,
            watched: BTreeSet::new(),
            packets: Packets::default(),
            problems: Vec::new(),
        })
    }

    /// The membership of its monitor.
    pub fn membership(&self) -> Membership {
        self.monitor.membership()
    }

    /// Reads the notifications that are there; never waits. Returns whether
    /// [`Self::problems`] has to look again.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain_notifications(&mut self) -> Result<bool, Error> {
        for notification in self.monitor.drain()? {
            self.changed |= match notification {
                Notification::Overflow => true,
                Notification::Changed { message, .. } => self.concerns(&message),
            };
        }
        Ok(self.changed)
    }

    /// Other tables' chains that drop such packets, each with its cure. Looks at them only
    /// when they have changed since the last call, or the question has.
    ///
    /// # Errors
    /// They cannot be read; the next call tries again.
    pub fn problems(&mut self, packets: &Packets) -> Result<&[Problem], Error> {
        if self.drain_notifications()? || self.packets != *packets {
            let findings = chains::find(&mut self.socket, packets)?;
            self.watched = findings.chains;
            self.problems = findings.problems;
            self.packets = packets.clone();
            self.changed = false;
        }
        Ok(&self.problems)
    }

    /// Whether a change of this object may concern the packets.
    fn concerns(&self, object: &Message) -> bool {
        const CHANGES: [u8; 5] = [NEW_TABLE, NEW_CHAIN, DELETE_CHAIN, NEW_RULE, DELETE_RULE];
        let Some(number) = object.number() else {
            return true;
        };
        if !CHANGES.contains(&number) {
            return false;
        }
        let Some(table) = object.text(TABLE_NAME) else {
            return true;
        };
        if is_own(object.family, table) {
            return false;
        }
        let is_watched = |kind| {
            object.text(kind).is_none_or(|name| {
                let chain = (object.family, table.to_owned(), name.to_owned());
                self.watched.contains(&chain)
            })
        };
        match number {
            // One that becomes dormant or wakes up is told as if it were new.
            NEW_TABLE => true,
            NEW_CHAIN => hook(object).is_some(),
            // Of a deleted chain the kernel gives the name alone.
            DELETE_CHAIN => is_watched(CHAIN_NAME),
            _ => is_watched(RULE_CHAIN),
        }
    }
}

/// What the other tables of `ruleset` drop of such packets: a problem for each chain.
/// [`Drops`] asks the kernel so.
///
/// # Errors
/// The ruleset cannot be read.
pub fn drops<R: Ruleset>(ruleset: &mut R, packets: &Packets) -> Result<Vec<Problem>, R::Error> {
    Ok(chains::find(ruleset, packets)?.problems)
}

impl AsFd for Drops {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

fn is_own(family: u8, table: &str) -> bool {
    let mut own = owned::TABLES.into_iter();
    own.any(|own| own.family == family && own.name == table)
}

/// The hook that a chain is at, if it is one that is looked at: where packets leave only a
/// chain that may translate them.
fn hook(chain: &Message) -> Option<Hook> {
    let number = chain.hook()?;
    let hook = Hook::ALL.into_iter().find(|hook| hook.number() == number)?;
    let translates = || chain.text(CHAIN_TYPE) == Some("nat");
    (hook != Hook::Postrouting || translates()).then_some(hook)
}
