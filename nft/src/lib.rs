//! The table `inet tweed`: its one entry point is [`Table`].
//!
//! [`skeleton`] is the table's rules as text, [`sets`] what its sets hold: both
//! pure. Rules seldom change and go through the program `nft`, as one
//! transaction that replaces the whole table; elements change with every Node
//! and go through netlink, as one transaction that changes only what differs.
//!
//! What always holds:
//! - no other table is ever written; of other tables only the chains that may
//!   drop forwarded packets are read ([`Table::foreign_drops`]);
//! - a table that is as it should be is only read, also after a restart;
//! - at no moment is the table missing or half written: packets see the old
//!   rules or the new ones.

mod baseline;
mod elements;
mod error;
mod foreign;
mod loader;
mod notices;
mod observe;
mod remove;
mod rules;
pub mod sets;
pub mod skeleton;
mod socket;
mod walk;
mod wire;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use baseline::Baseline;
pub use error::Error;
use nix::errno::Errno;
use notices::Notices;
use observe::Observation;
pub use remove::remove;
use sets::Contents;
use skeleton::{Skeleton, TABLE};
use socket::Requests;
use tokio_util::sync::CancellationToken;

use tweed_core::problem::Problem;
use tweed_planner::overlay::desired::Ruleset;

/// How often a new table is read back, if others change rules at that moment.
const TRUST_TRIES: usize = 3;

/// What a pass did.
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

/// The table in the kernel, for one thread in one network namespace.
pub struct Table {
    nft: PathBuf,
    /// Ends a run of `nft` early.
    stop: CancellationToken,
    run_dir: PathBuf,
    requests: Requests,
    notices: Notices,
    /// The table when whole; none if that is not known.
    baseline: Option<Baseline>,
    /// What the sets were last seen or left to hold; none if that is not known.
    contents: Option<Contents>,
    /// What other tables drop, as last seen.
    foreign_drops: Vec<Problem>,
}

impl Table {
    /// Opens the sockets, in the calling thread's network namespace, and
    /// changes nothing. `run_dir` must exist; `nft` is the program, looked for
    /// in `PATH` if it is a plain name.
    ///
    /// # Errors
    /// [`Error::NoNfTables`], [`Error::NotAllowed`].
    pub fn open(run_dir: &Path, nft: &Path) -> Result<Self, Error> {
        let mut requests = Requests::open()?;
        observe::generation(&mut requests).map_err(|error| match error {
            Error::Kernel { source, .. } => Error::unavailable(source),
            other => other,
        })?;
        let notices = Notices::open(requests.port())?;
        Ok(Self {
            nft: nft.to_owned(),
            stop: CancellationToken::new(),
            run_dir: run_dir.to_owned(),
            requests,
            notices,
            baseline: Baseline::read(run_dir),
            contents: None,
            foreign_drops: Vec::new(),
        })
    }

    /// Does not wait for a program `nft` that hangs when `stop` is cancelled.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Reads the notifications that are there; never waits. Says whether a pass
    /// is due: something else has changed the table since [`Self::reconcile`]
    /// looked at it, or what [`Self::foreign_drops`] looks at.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain_notifications(&mut self) -> Result<bool, Error> {
        let touched = self.notices.drain()?;
        Ok(touched.table || touched.forward)
    }

    /// Makes the table as `ruleset` says. It is looked at when something else
    /// has touched it, after an error, and when `force_observe` says so;
    /// otherwise only what differs from the last pass is written.
    ///
    /// # Errors
    /// The first failure; the next pass then looks at everything again.
    pub fn reconcile(&mut self, ruleset: &Ruleset, force_observe: bool) -> Result<Outcome, Error> {
        let result = self.pass(ruleset, force_observe);
        if result.is_err() {
            self.contents = None;
        }
        result
    }

    /// Makes the sets follow a change of the Nodes: elements of `removed` that
    /// `added` has not go, those of `added` come. None if the sets are not known
    /// to hold what was asked for before: then [`Self::reconcile`] has to look.
    ///
    /// # Errors
    /// The change was refused; the next pass then looks at everything again.
    pub fn follow(&mut self, removed: &Ruleset, added: &Ruleset) -> Result<Option<Outcome>, Error> {
        if self.notices.drain()?.table {
            return Ok(None);
        }
        let Some(mut contents) = self.contents.take() else {
            return Ok(None);
        };
        let changes = sets::diff(&sets::contents(removed), &sets::contents(added));
        let writes = elements::writes(observe::NAME, &changes);
        if !writes.is_empty() {
            self.requests.transact(&writes, TABLE)?;
        }
        for change in &changes {
            if let Some(elements) = contents.get_mut(&change.set) {
                for element in &change.remove {
                    elements.remove(element);
                }
                elements.extend(&change.add);
            }
        }
        self.contents = Some(contents);
        Ok(Some(Outcome {
            changed: sets::count(&changes),
            repaired: 0,
            messages: writes.len(),
        }))
    }

    /// Other tables' chains that drop what pods send or get, each with its
    /// cure. Looks at them only when they have changed since the last call.
    ///
    /// # Errors
    /// They cannot be read; the next call tries again.
    pub fn foreign_drops(&mut self) -> Result<Vec<Problem>, Error> {
        if self.notices.drain()?.forward {
            let findings = foreign::find(&mut self.requests)?;
            self.notices.forward_seen(findings.chains);
            self.foreign_drops = findings.problems;
        }
        Ok(self.foreign_drops.clone())
    }

    fn pass(&mut self, ruleset: &Ruleset, force_observe: bool) -> Result<Outcome, Error> {
        let skeleton = Skeleton::new(ruleset);
        let desired = sets::contents(ruleset);
        let due = force_observe || self.notices.drain()?.table;
        let left = self.contents.take();
        let Some(digest) = self.known_digest(&skeleton) else {
            let mut outcome = drift(None, left.as_ref(), &desired);
            outcome.changed += 1;
            return self.replace(&skeleton, &desired, outcome);
        };
        let seen = match left {
            Some(_) if !due => None,
            _ => Some(self.observe(&skeleton)?),
        };
        let (actual, whole) = match &seen {
            None => (left.as_ref(), true),
            Some(None) => (None, false),
            Some(Some(seen)) => (Some(&seen.contents), seen.digest == digest),
        };
        let mut outcome = drift(actual, left.as_ref(), &desired);
        let Some(actual) = actual.filter(|_| whole) else {
            outcome.repaired += 1;
            return self.replace(&skeleton, &desired, outcome);
        };
        let changes = sets::diff(actual, &desired);
        let writes = elements::writes(observe::NAME, &changes);
        if !writes.is_empty() {
            match self.requests.transact(&writes, TABLE) {
                Err(error) if too_long(&error) => {
                    return self.replace(&skeleton, &desired, outcome);
                }
                result => result?,
            }
        }
        self.contents = Some(desired);
        Ok(Outcome {
            messages: writes.len(),
            ..outcome
        })
    }

    /// Looks at the table. What was notified before is seen by it.
    fn observe(&mut self, skeleton: &Skeleton) -> Result<Option<Observation>, Error> {
        self.notices.drain()?.table = false;
        observe::observe(&mut self.requests, skeleton.chains())
    }

    /// The digest of the whole table with this skeleton; none if it is not known.
    fn known_digest(&self, skeleton: &Skeleton) -> Option<String> {
        let baseline = self.baseline.as_ref()?;
        (baseline.version == skeleton.version()).then(|| baseline.digest.clone())
    }

    /// Replaces the whole table and learns how the kernel shows it. If anybody
    /// changed rules between the two, it might have been these: what is seen is
    /// then trusted only if it is known to be whole. A table that somebody was
    /// breaking at that moment would otherwise be kept so for good.
    fn replace(
        &mut self,
        skeleton: &Skeleton,
        desired: &Contents,
        outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let script = skeleton.script(desired);
        let known = self.known_digest(skeleton);
        for messages in 1..=TRUST_TRIES {
            let before = observe::generation(&mut self.requests)?;
            loader::load(&self.nft, &self.run_dir, &script, &self.stop)?;
            let seen = self.observe(skeleton)?;
            let after = observe::generation(&mut self.requests)?;
            let alone = after == before.map(|id| id.wrapping_add(1));
            let is_whole = |seen: &Observation| alone || known.as_ref() == Some(&seen.digest);
            let Some(seen) = seen.filter(is_whole) else {
                continue;
            };
            let baseline = Baseline {
                version: skeleton.version().to_owned(),
                digest: seen.digest,
            };
            self.baseline = Some(baseline.clone());
            self.contents = Some(seen.contents);
            baseline.write(&self.run_dir)?;
            return Ok(Outcome {
                messages,
                ..outcome
            });
        }
        Err(Error::Interrupted {
            object: TABLE.to_owned(),
            tries: TRUST_TRIES,
        })
    }
}

impl AsFd for Table {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

/// Counts the elements that a pass writes: `left` is what the last pass left,
/// `actual` what is there; none if there is no table.
fn drift(actual: Option<&Contents>, left: Option<&Contents>, desired: &Contents) -> Outcome {
    let nothing = Contents::new();
    let asked = sets::diff(left.or(actual).unwrap_or(&nothing), desired);
    let needed = actual.map_or_else(|| asked.clone(), |actual| sets::diff(actual, desired));
    let repaired = sets::count_beyond(&needed, &asked);
    Outcome {
        changed: sets::count(&needed) - repaired,
        repaired,
        messages: 0,
    }
}

/// Whether a transaction did not fit into one datagram.
fn too_long(error: &Error) -> bool {
    matches!(error, Error::Kernel { source, .. } if source.raw_os_error() == Some(Errno::EMSGSIZE as i32))
}
