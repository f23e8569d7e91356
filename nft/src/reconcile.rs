//! Makes the kernel hold a table: looks, compares, writes what differs.

mod earlier;
mod provided;
mod quiet;
mod replace;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tokio_util::sync::CancellationToken;
use tweed_netlink::nf::idle::Idle;
use tweed_netlink::nf::object::{NEW_GENERATION, TABLE_NAME, TableKey, generation};
use tweed_netlink::nf::{Membership, Monitor, Notification, Socket};

use crate::baseline::Baseline;
use crate::codec;
use crate::element::{self, Change, Contents};
use crate::error::Error;
use crate::look::Held;
use crate::observe::{Observation, observe};
use crate::provided::Provider;
use crate::sum::Summer;
use crate::table::{Set, Skeleton};
use earlier::Earlier;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Objects written because they are desired otherwise than before. All the
    /// rules together are one object, each set element is one.
    pub changed: usize,
    /// Objects put back that something else had changed, counted likewise.
    pub repaired: usize,
    /// Netlink messages sent that change the kernel; a replacement of the whole
    /// table counts as one.
    pub messages: usize,
}

impl Add for Outcome {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            changed: self.changed + other.changed,
            repaired: self.repaired + other.repaired,
            messages: self.messages + other.messages,
        }
    }
}

/// Keeps one table, for one thread in one network namespace.
pub struct Reconciler {
    table: TableKey<'static>,
    nft: PathBuf,
    /// Ends a run of `nft` early.
    stop: CancellationToken,
    socket: Socket,
    /// Notifications about this port's transactions are about its own changes.
    own_port: u32,
    monitor: Monitor,
    /// Pauses with the own one.
    other_monitor: Option<Membership>,
    /// Whether something else may have changed the table since it was looked at.
    touched: bool,
    baseline_file: PathBuf,
    /// How the kernel shows the table when whole; none if that is not known.
    baseline: Option<Baseline>,
    /// What the sets were last seen or left to hold; none if that is not known.
    contents: Option<Contents>,
    /// The providers whose sets are known to hold what was last desired.
    provided_known: BTreeSet<&'static str>,
    summer: Summer,
    /// What looks beside this thread ask with.
    looks_with: Idle<Socket>,
    /// What each set that is provided was last seen or left to hold.
    held: BTreeMap<String, Held>,
    /// How often sets that are provided were written or compared.
    numbered: u64,
    /// How often the table was replaced.
    replacements: u64,
    /// How the table of another version looked that was left as it is.
    earlier: Option<Earlier>,
}

impl Reconciler {
    /// Opens the sockets, in the calling thread's network namespace, and changes
    /// nothing. `nft` is the program, looked for in `PATH` if it is a plain name.
    /// `baseline` is the file that remembers how the kernel shows the whole table;
    /// its folder must exist.
    ///
    /// # Errors
    /// [`Error::NoNfTables`], [`Error::NotAllowed`].
    pub fn open(table: TableKey<'static>, nft: &Path, baseline: &Path) -> Result<Self, Error> {
        let mut socket = Socket::open().map_err(Error::unavailable)?;
        generation(&mut socket).map_err(Error::unavailable)?;
        Ok(Self {
            table,
            nft: nft.to_owned(),
            stop: CancellationToken::new(),
            own_port: socket.port()?,
            socket,
            monitor: Monitor::open().map_err(Error::unavailable)?,
            other_monitor: None,
            touched: true,
            baseline_file: baseline.to_owned(),
            baseline: Baseline::read(baseline),
            contents: None,
            provided_known: BTreeSet::new(),
            summer: Summer::default(),
            looks_with: Idle::default(),
            held: BTreeMap::new(),
            numbered: 0,
            replacements: 0,
            earlier: None,
        })
    }

    /// Does not wait for a program `nft` that hangs when `stop` is cancelled.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Reads the notifications that are there; never waits. Returns whether
    /// something else has changed the table since [`Self::reconcile`] looked at it.
    /// Which object it was does not matter: a notification makes the reader look
    /// again, and is never believed.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain_notifications(&mut self) -> Result<bool, Error> {
        for notification in self.monitor.drain()? {
            self.touched |= concerns(self.table, self.own_port, &notification);
        }
        self.settle_touched();
        Ok(self.touched)
    }

    /// Makes the table as `skeleton` and `desired` say. It is looked at when
    /// something else has touched it, after an error, and when `force_observe` says
    /// so; otherwise only what differs from the last time is written.
    ///
    /// The sets that are provided are left as they are, and looked at by
    /// [`Self::compare`]. If the table has to be replaced, they begin with what
    /// `provider` says, or empty without one.
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn reconcile(
        &mut self,
        skeleton: &Skeleton,
        desired: Contents,
        provider: Option<&dyn Provider>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let left = self.contents.take();
        let due = self.drain_notifications()? || force_observe;
        let Some(digest) = self.known_digest(skeleton) else {
            let mut outcome = drift(None, left.as_ref(), &desired);
            outcome.changed += 1;
            return self.replace(skeleton, &desired, provider, outcome);
        };
        let seen = match left {
            Some(_) if !due => None,
            _ => Some(self.observe(skeleton)?),
        };
        let (actual, whole) = match &seen {
            None => (left.as_ref(), true),
            Some(None) => (None, false),
            Some(Some(seen)) => (Some(&seen.contents), seen.digest == digest),
        };
        let mut outcome = drift(actual, left.as_ref(), &desired);
        let Some(actual) = actual.filter(|_| whole) else {
            outcome.repaired += 1;
            return self.replace(skeleton, &desired, provider, outcome);
        };
        let changes = element::diff(actual, &desired);
        match self.write(&skeleton.sets, &changes, &[]) {
            Ok(messages) => {
                self.contents = Some(desired);
                outcome.messages = messages;
                Ok(outcome)
            }
            // The elements do not fit into one datagram, and there is no right to make
            // room for them.
            Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                self.replace(skeleton, &desired, provider, outcome)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `changes` to `sets` without looking. None if what the sets hold is not
    /// known: then [`Self::reconcile`] has to look.
    ///
    /// # Errors
    /// The change was refused; the next call then looks at everything again.
    pub fn follow(&mut self, sets: &[Set], changes: Vec<Change>) -> Result<Option<Outcome>, Error> {
        let followed = self.follow_provided(sets, [changes]);
        if followed.is_err() {
            self.contents = None;
        }
        followed
    }

    /// How many packets a counter of the table has counted; none if there is none.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn counted(&mut self, counter: &str) -> Result<Option<u64>, Error> {
        Ok(self.table.counted(&mut self.socket, counter)?)
    }

    /// Sends the changes as one transaction, which also empties `flushed`, and returns the
    /// number of messages.
    fn write(
        &mut self,
        sets: &[Set],
        changes: &[Change],
        flushed: &[String],
    ) -> Result<usize, Error> {
        let transaction = codec::transaction(self.table, sets, changes, flushed);
        if transaction.is_empty() {
            return Ok(0);
        }
        if let Err(error) = self.commit(&transaction, changes, flushed) {
            if !error.is_refusal() {
                self.provided_known.clear();
            }
            return Err(error);
        }
        self.note_written(changes);
        self.drain_notifications()?;
        Ok(transaction.len())
    }

    /// Looks at the table. What was notified before is seen by it, except in the sets that
    /// are provided.
    fn observe(&mut self, skeleton: &Skeleton) -> Result<Option<Observation>, Error> {
        self.drain_notifications()?;
        self.touched = false;
        Ok(observe(&mut self.socket, skeleton)?)
    }

    /// The digest of the whole table with this skeleton; none if it is not known.
    fn known_digest(&self, skeleton: &Skeleton) -> Option<String> {
        let baseline = self.baseline.as_ref()?;
        (baseline.version == skeleton.version).then(|| baseline.digest.clone())
    }
}

impl AsFd for Reconciler {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// Whether a notification says, or may say, that another socket than `own_port` has
/// changed `table`.
fn concerns(table: TableKey<'_>, own_port: u32, notification: &Notification) -> bool {
    match notification {
        Notification::Overflow => true,
        Notification::Changed { port, .. } if *port == own_port => false,
        Notification::Changed { message, .. } => {
            message.number() != Some(NEW_GENERATION)
                && message
                    .text(TABLE_NAME)
                    .is_none_or(|name| message.family == table.family && name == table.name)
        }
    }
}

/// Counts the elements to write: `left` is what the last call left, `actual` what
/// is there; none if there is no table.
fn drift(actual: Option<&Contents>, left: Option<&Contents>, desired: &Contents) -> Outcome {
    let nothing = Contents::new();
    let asked = element::diff(left.or(actual).unwrap_or(&nothing), desired);
    let needed = actual.map_or_else(|| asked.clone(), |actual| element::diff(actual, desired));
    let repaired = element::count_beyond(&needed, &asked);
    Outcome {
        changed: element::count(&needed) - repaired,
        repaired,
        messages: 0,
    }
}
