//! What nf_tables' notifications say: whether the table was touched by others,
//! and whether what may drop forwarded packets changed. Which object it was
//! does not matter: a notice makes the reader look again, never believe.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use crate::error::Error;
use crate::foreign::ChainName;
use crate::observe::{CHAIN_NAME, NAME, RULE_CHAIN, TABLE_NAME};
use crate::socket::Monitor;
use crate::wire::{self, Received};

/// `NFTA_CHAIN_HOOK`, `NFTA_HOOK_HOOKNUM`, `NF_INET_FORWARD`.
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const HOOK_NUMBER: u16 = 1;
pub(super) const HOOK_FORWARD: u32 = 2;

const NEW_CHAIN: u16 = wire::nf_tables(3);
const DELETE_CHAIN: u16 = wire::nf_tables(5);
const NEW_RULE: u16 = wire::nf_tables(6);
const DELETE_RULE: u16 = wire::nf_tables(8);
const NEW_GENERATION: u16 = wire::nf_tables(15);

/// What must be looked at again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// The table `inet tweed`.
    pub(super) table: bool,
    /// Other tables' chains at the hook forward.
    pub(super) forward: bool,
}

/// The listening socket and what it was told so far.
pub(super) struct Notices {
    monitor: Monitor,
    /// Notifications about this port's transactions are not news.
    own_port: u32,
    touched: Touched,
    /// Other tables' chains that may decide about forwarded packets. Not whole
    /// tables: that of Services has a chain for each, and changes all the time.
    watched: BTreeSet<ChainName>,
}

impl Notices {
    /// Listens in the calling thread's network namespace. Nothing has been
    /// looked at yet, so everything counts as touched.
    pub(super) fn open(own_port: u32) -> Result<Self, Error> {
        Ok(Self {
            monitor: Monitor::open()?,
            own_port,
            touched: Touched {
                table: true,
                forward: true,
            },
            watched: BTreeSet::new(),
        })
    }

    /// The chains at the hook forward have been looked at, with what they jump
    /// to: `chains`. Notifications that came meanwhile are still unread.
    pub(super) fn forward_seen(&mut self, chains: BTreeSet<ChainName>) {
        self.watched = chains;
        self.touched.forward = false;
    }

    /// Reads all notifications that are there.
    pub(super) fn drain(&mut self) -> Result<&mut Touched, Error> {
        loop {
            match self.monitor.next() {
                Ok(None) => return Ok(&mut self.touched),
                Ok(Some(datagram)) => match wire::messages(&datagram) {
                    Some(messages) => {
                        for received in messages {
                            self.note(&received);
                        }
                    }
                    None => self.everything(),
                },
                Err(error) if overflow(&error) => self.everything(),
                Err(source) => {
                    return Err(Error::Kernel {
                        operation: "listen to changes of",
                        object: "the ruleset".to_owned(),
                        source,
                    });
                }
            }
        }
    }

    fn everything(&mut self) {
        self.touched = Touched {
            table: true,
            forward: true,
        };
    }

    fn note(&mut self, received: &Received<'_>) {
        if received.kind == wire::NLMSG_OVERRUN {
            self.everything();
            return;
        }
        if received.kind == NEW_GENERATION || received.port == self.own_port {
            return;
        }
        let Some((family, attributes)) = received.family_and_attributes() else {
            return self.everything();
        };
        let Some(table) = wire::attribute(attributes, TABLE_NAME).and_then(wire::text) else {
            return self.everything();
        };
        if family == wire::FAMILY_INET && table == NAME {
            self.touched.table = true;
            return;
        }
        let is_watched = |kind: u16| {
            let name = wire::attribute(attributes, kind).and_then(wire::text);
            name.is_none_or(|name| {
                let chain = (family, table.to_owned(), name.to_owned());
                self.watched.contains(&chain)
            })
        };
        let forward = match received.kind {
            NEW_CHAIN => is_forward(attributes),
            // Of a chain that goes the kernel tells the name alone.
            DELETE_CHAIN => is_watched(CHAIN_NAME),
            NEW_RULE | DELETE_RULE => is_watched(RULE_CHAIN),
            _ => false,
        };
        self.touched.forward |= forward;
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// Whether a chain's attributes put it at the hook forward.
pub(super) fn is_forward(attributes: &[u8]) -> bool {
    wire::attribute(attributes, CHAIN_HOOK)
        .and_then(|hook| wire::attribute(hook, HOOK_NUMBER))
        .and_then(wire::number)
        == Some(HOOK_FORWARD)
}

fn overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}
