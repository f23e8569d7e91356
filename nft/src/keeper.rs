//! Makes the kernel hold one table: looks, compares, writes what differs.
//!
//! A keeper knows of its table what others have not changed since: how the kernel shows it
//! ([`Baseline`]), what the sets hold of which it has a copy, and whether the provided sets
//! hold what was desired last ([`Known`]). What it does not know it compares.

mod provided;
mod replace;

use std::fs;
use std::io::ErrorKind;
use std::ops::Add;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tweed_core::atomic_file::ReplaceError;
use tweed_netlink::nf::object::{DELETE_TABLE, TableKey};
use tweed_netlink::nf::{Attributes, Transaction};

use crate::baseline::Baseline;
use crate::codec;
use crate::connection::Connection;
use crate::element::{self, Change, Contents, Elements};
use crate::error::Error;
use crate::observe::{Observation, observe};
use crate::provider::Provider;
use crate::table::{Set, Skeleton};

/// Number of elements from which on a transaction is large. To leave the groups of
/// notifications and to join them costs as much as the notifications of some ten elements.
const LARGE: usize = 100;

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

/// What is known of the provided sets of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Nothing: any difference is a change.
    Nothing,
    /// They held what was desired last, and something else may have changed them: any
    /// difference is a repair.
    Before,
    /// They hold what was desired last.
    Now,
}

/// Keeps one table, for one thread in one network namespace.
pub struct Keeper {
    table: TableKey<'static>,
    baseline_file: PathBuf,
    /// How the kernel shows the table when whole; none if that is not known.
    baseline: Option<Baseline>,
    /// What the sets were last seen or left to hold; none if that is not known.
    contents: Option<Contents>,
    provided: Known,
    /// Whether the table was deleted, or not there, when it was last looked at.
    is_gone: bool,
    /// How often the table was replaced.
    replacements: u64,
}

impl Keeper {
    /// Keeps this table. `baseline` is the file that remembers how the kernel shows it when
    /// whole; its folder must exist.
    pub fn new(table: TableKey<'static>, baseline: &Path) -> Self {
        Self {
            table,
            baseline_file: baseline.to_owned(),
            baseline: Baseline::read(baseline),
            contents: None,
            provided: Known::Nothing,
            is_gone: false,
            replacements: 0,
        }
    }

    /// Whether something else may have changed the table since it was looked at.
    ///
    /// # Errors
    /// The notifications cannot be read.
    pub fn is_touched(&mut self, nft: &mut Connection) -> Result<bool, Error> {
        nft.drain_notifications()?;
        let is_touched = nft.is_touched(self.table);
        if is_touched {
            self.doubt_provided();
        }
        Ok(is_touched)
    }

    /// Something may have changed the provided sets: they have to be compared.
    fn doubt_provided(&mut self) {
        if self.provided == Known::Now {
            self.provided = Known::Before;
        }
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
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: Contents,
        provider: Option<&dyn Provider>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let left = self.contents.take();
        let asked = left.map(|left| element::diff(&left, &desired));
        self.is_gone = false;
        let looks = self.is_touched(nft)? || force_observe || asked.is_none();
        let Some(digest) = self.known_digest(skeleton) else {
            let mut outcome = drift(None, asked.as_deref(), &desired);
            outcome.changed += 1;
            return self.replace(nft, skeleton, desired, provider, outcome);
        };
        let seen = if looks {
            self.observe(nft, skeleton, &desired)?
        } else {
            None
        };
        let (needed, is_whole) = match &seen {
            Some(seen) => (Some(&*seen.needed), seen.digest == digest),
            None if looks => (None, false),
            None => (asked.as_deref(), true),
        };
        let mut outcome = drift(needed, asked.as_deref(), &desired);
        let Some(needed) = needed.filter(|_| is_whole) else {
            outcome.repaired += 1;
            return self.replace(nft, skeleton, desired, provider, outcome);
        };
        match self.write(nft, &skeleton.sets, needed, &[]) {
            Ok(messages) => {
                self.contents = Some(desired);
                outcome.messages = messages;
                Ok(outcome)
            }
            // The elements do not fit into one datagram, and there is no right to make
            // room for them.
            Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                self.replace(nft, skeleton, desired, provider, outcome)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the table, if there is one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.contents = None;
        self.provided = Known::Nothing;
        if self.baseline.take().is_some() {
            match fs::remove_file(&self.baseline_file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(ReplaceError::on("remove", &self.baseline_file)(error).into());
                }
                _ => {}
            }
        }
        nft.drain_notifications()?;
        if self.is_gone && !nft.is_touched(self.table) {
            return Ok(Outcome::default());
        }
        nft.look_at(self.table)?;
        self.is_gone = true;
        if self.table.get(&mut nft.socket)?.is_none() {
            return Ok(Outcome::default());
        }
        let mut transaction = Transaction::new(format!("table {}", self.table));
        transaction.delete(self.table.message(DELETE_TABLE, Attributes::new()));
        if let Err(error) = nft.commit(&transaction, true) {
            self.is_gone = false;
            return Err(error);
        }
        Ok(Outcome {
            changed: 1,
            repaired: 0,
            messages: 1,
        })
    }

    /// Sends the changes as one transaction, which also empties `flushed`, and returns the
    /// number of messages.
    fn write(
        &mut self,
        nft: &mut Connection,
        sets: &[Set],
        changes: &[Change],
        flushed: &[String],
    ) -> Result<usize, Error> {
        let transaction = codec::transaction(self.table, sets, changes, flushed);
        if transaction.is_empty() {
            return Ok(0);
        }
        // How many elements a set loses that is emptied is not known.
        let is_large = !flushed.is_empty() || element::count(changes) >= LARGE;
        if let Err(error) = nft.commit(&transaction, is_large) {
            if !error.is_refusal() {
                self.doubt_provided();
            }
            return Err(error);
        }
        self.is_touched(nft)?;
        Ok(transaction.len())
    }

    /// Looks at the table, and compares it with what is desired. What was notified before is
    /// seen by it, except in the sets that are provided.
    fn observe(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Contents,
    ) -> Result<Option<Observation>, Error> {
        self.look_at(nft)?;
        Ok(observe(&mut nft.socket, skeleton, desired)?)
    }

    /// The table is looked at from now on, but for the sets that are provided.
    pub(super) fn look_at(&mut self, nft: &mut Connection) -> Result<(), Error> {
        self.is_touched(nft)?;
        nft.look_at(self.table)
    }

    /// The digest of the whole table with this skeleton; none if it is not known.
    fn known_digest(&self, skeleton: &Skeleton) -> Option<String> {
        let baseline = self.baseline.as_ref()?;
        (baseline.version == skeleton.version).then(|| baseline.digest.clone())
    }
}

/// Counts the elements to write. `needed` is how what is desired differs from what is there, none
/// if there is no table; `asked`, if it is known, how it differs from what the last call left.
fn drift(needed: Option<&[Change]>, asked: Option<&[Change]>, desired: &Contents) -> Outcome {
    let repaired = match (needed, asked) {
        (Some(needed), Some(asked)) => element::count_beyond(needed, asked),
        _ => 0,
    };
    let all = || desired.values().map(Elements::len).sum();
    let written = needed.or(asked).map_or_else(all, element::count);
    Outcome {
        changed: written - repaired,
        repaired,
        messages: 0,
    }
}
