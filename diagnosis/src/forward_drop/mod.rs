//! Tables of others that drop what pods send or get. The table `inet tweed` cannot
//! overrule them, so they are named, with the cure. Only read, never written.
//!
//! The way of the data: [`ForwardDrops`] reads nf_tables' notifications, and only if
//! one of them concerns a chain that forwarded packets pass through does it look at
//! the chains again. [`nftables`] finds those at the hook forward and judges them by
//! [`walk`], which sends an imaginary packet through their rules.
//!
//! The old iptables (`iptables-legacy`) is no part of nf_tables:
//! [`crate::iptables_legacy`].

mod nftables;
mod walk;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use tweed_core::problem::Problem;
use tweed_netlink::nf::object::{
    CHAIN_NAME, DELETE_CHAIN, DELETE_RULE, NEW_CHAIN, NEW_RULE, RULE_CHAIN, TABLE_NAME,
};
use tweed_netlink::nf::{Message, Monitor, Notification, Socket};
use tweed_netlink::{Error, owned};

use nftables::ChainName;

/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;

/// What other tables drop, for one network namespace.
pub struct ForwardDrops {
    socket: Socket,
    monitor: Monitor,
    /// Whether the chains may have changed since they were looked at.
    changed: bool,
    /// The chains that forwarded packets pass through. Not whole tables: that of
    /// Services has a chain for each, and changes all the time.
    watched: BTreeSet<ChainName>,
    /// What was found when they were looked at.
    problems: Vec<Problem>,
}

impl ForwardDrops {
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
            problems: Vec::new(),
        })
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

    /// Other tables' chains that drop what pods send or get, each with its cure.
    /// Looks at them only when they have changed since the last call.
    ///
    /// # Errors
    /// They cannot be read; the next call tries again.
    pub fn problems(&mut self) -> Result<&[Problem], Error> {
        if self.drain_notifications()? {
            let findings = nftables::find(&mut self.socket)?;
            self.watched = findings.chains;
            self.problems = findings.problems;
            self.changed = false;
        }
        Ok(&self.problems)
    }

    /// Whether a change of this object may concern forwarded packets.
    fn concerns(&self, object: &Message) -> bool {
        let Some(number) = object.number() else {
            return true;
        };
        if !matches!(number, NEW_CHAIN | DELETE_CHAIN | NEW_RULE | DELETE_RULE) {
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
            NEW_CHAIN => is_at_forward(object),
            // Of a deleted chain the kernel gives the name alone.
            DELETE_CHAIN => is_watched(CHAIN_NAME),
            _ => is_watched(RULE_CHAIN),
        }
    }
}

impl AsFd for ForwardDrops {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

fn is_own(family: u8, table: &str) -> bool {
    family == owned::TABLE.family && table == owned::TABLE.name
}

/// Whether a chain is at the hook forward.
fn is_at_forward(chain: &Message) -> bool {
    chain.hook() == Some(FORWARD)
}
