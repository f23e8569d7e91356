//! What all tables of a thread share: a socket, a monitor of what others change, and the
//! program `nft`.
//!
//! Of a large transaction nobody is notified: an element's notification costs the kernel as
//! much as the element, and thousands of them do not fit into a monitor's room. That nobody
//! else has changed anything meanwhile is told by the number of transactions. If it does not
//! fit, or notifications were lost, every table counts as touched and is compared.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;
use tweed_netlink::nf::object::{NEW_GENERATION, TABLE_NAME, TableKey, generation};
use tweed_netlink::nf::{FAMILY_INET, Membership, Monitor, Notification, Socket, Transaction};

use crate::error::Error;
use crate::loader;

/// The nf_tables of the network namespace in which it was opened.
pub struct Connection {
    pub(super) socket: Socket,
    nft: PathBuf,
    /// Where the texts for `nft` are for a moment.
    run_dir: PathBuf,
    /// Ends a run of `nft` early.
    stop: CancellationToken,
    /// Notifications about this port's transactions are about its own changes.
    own_port: u32,
    monitor: Monitor,
    /// Pauses with the own one.
    other_monitor: Option<Membership>,
    /// The tables that nothing else has changed since they were looked at.
    untouched: BTreeSet<&'static str>,
}

impl Connection {
    /// Opens the sockets, in the calling thread's network namespace, and changes nothing.
    /// `run_dir` must exist; `nft` is the program, looked for in `PATH` if it is a plain
    /// name.
    ///
    /// # Errors
    /// [`Error::NoNfTables`], [`Error::NotAllowed`].
    pub fn open(run_dir: &Path, nft: &Path) -> Result<Self, Error> {
        let mut socket = Socket::open().map_err(Error::unavailable)?;
        generation(&mut socket).map_err(Error::unavailable)?;
        Ok(Self {
            own_port: socket.port()?,
            socket,
            nft: nft.to_owned(),
            run_dir: run_dir.to_owned(),
            stop: CancellationToken::new(),
            monitor: Monitor::open().map_err(Error::unavailable)?,
            other_monitor: None,
            untouched: BTreeSet::new(),
        })
    }

    /// Does not wait for a program `nft` that hangs when `stop` is cancelled.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Has another monitor of nf_tables in this network namespace pause, too, while a large
    /// transaction is written; none if there is none.
    pub fn pause_with(&mut self, other: Option<Membership>) {
        self.other_monitor = other;
    }

    /// Reads the notifications that are there; never waits. Which object has changed does
    /// not matter: a notification makes the table's keeper look again, and is never believed.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain_notifications(&mut self) -> Result<(), Error> {
        for notification in self.monitor.drain()? {
            match touched(self.own_port, &notification) {
                Touched::None => {}
                Touched::One(name) => drop(self.untouched.remove(name)),
                Touched::All => self.untouched.clear(),
            }
        }
        Ok(())
    }

    /// Whether something else may have changed a table since its keeper looked at it, as
    /// far as notifications were read.
    pub fn is_touched(&self, table: TableKey<'_>) -> bool {
        !self.untouched.contains(table.name)
    }

    /// A table is looked at from now on: what was notified before will be seen.
    pub(super) fn look_at(&mut self, table: TableKey<'static>) -> Result<(), Error> {
        self.drain_notifications()?;
        self.untouched.insert(table.name);
        Ok(())
    }

    /// Loads a text with the program `nft`.
    pub(super) fn load(&self, table: TableKey<'_>, script: &str) -> Result<(), Error> {
        loader::load(&self.nft, &self.run_dir, script, table, &self.stop)
    }

    /// Carries out a transaction; of a large one nobody is notified.
    ///
    /// The order matters. What others do before `before` is read is notified of before the
    /// monitors leave; what they do after `after` is read, after they have joined; and what
    /// they do between shows in the difference. A transaction of others that is under way is
    /// waited for first: it would be heard, and counted all the same.
    pub(super) fn commit(
        &mut self,
        transaction: &Transaction,
        is_large: bool,
    ) -> Result<(), Error> {
        if !is_large {
            return Ok(self.socket.commit(transaction)?);
        }
        self.socket.await_notifications()?;
        let before = generation(&mut self.socket)?;
        self.socket.await_notifications()?;
        let mut monitors = vec![self.monitor.membership()];
        monitors.extend(self.other_monitor.clone());
        monitors.iter().try_for_each(Membership::leave)?;
        let committed = self.socket.commit(transaction);
        let joined = monitors.iter().try_for_each(Membership::join);
        // If it is not known, they have missed something: that is no reason to take the
        // transaction for one that has failed.
        let after = joined.and_then(|()| generation(&mut self.socket));
        let own = u32::from(committed.is_ok());
        let expected = before.map(|before| before.wrapping_add(own));
        if expected.is_some() && after.is_ok_and(|after| after == expected) {
            monitors.iter().for_each(Membership::missed_nothing);
        }
        Ok(committed?)
    }
}

impl AsFd for Connection {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// The tables of the family `inet` that a notification is about.
enum Touched<'a> {
    None,
    One(&'a str),
    All,
}

/// Which tables another socket than `own_port` has changed, or may have changed.
fn touched(own_port: u32, notification: &Notification) -> Touched<'_> {
    let Notification::Changed { port, message } = notification else {
        return Touched::All;
    };
    if *port == own_port || message.number() == Some(NEW_GENERATION) {
        return Touched::None;
    }
    match message.text(TABLE_NAME) {
        None => Touched::All,
        Some(name) if message.family == FAMILY_INET => Touched::One(name),
        Some(_) => Touched::None,
    }
}
