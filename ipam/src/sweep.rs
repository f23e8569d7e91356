//! Taking back what its owner left behind.
//!
//! [`verdict`] decides, without looking at anything but its arguments; [`sweep`]
//! (the agent, and GC without a list) and [`gc`] (GC with one) do it. What always
//! holds: a record is judged again under the lock before it is touched; a live one
//! is marked deleting, the link is taken away, then the addresses become free, in
//! this order, so that nobody gets an address that a link still uses, and a pass
//! that is cut off is ended by the next.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::record::{Owner, Record, State};
use crate::store::{Entry, Freed, Locked, Store, StoreError};
use tweed_core::attachment::Attachment;

/// Why a record is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was written before the machine was started.
    OtherBoot,
    /// Its ADD was cut off: the process is gone.
    OwnerGone,
    /// Its DEL was cut off; or, where it holds no lock, is under way and will
    /// find its work done.
    DelCutOff,
    /// Its link was there in this boot and is gone.
    LinkRemoved,
    /// The runtime does not know the attachment any more.
    NotListed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherBoot => "it is of another boot",
            Self::OwnerGone => "the process that added it is gone",
            Self::DelCutOff => "its DEL was cut off",
            Self::LinkRemoved => "its link is gone",
            Self::NotListed => "the runtime does not list it",
        })
    }
}

/// What is known besides the records.
pub struct Evidence<'a> {
    /// The current boot.
    pub boot_id: &'a str,
    /// Whether nobody is at work any more on a record that says so:
    /// [`Store::is_abandoned`].
    pub abandoned: &'a dyn Fn(&Record) -> bool,
    /// Whether the link of a record was seen in this boot and is gone. Only
    /// asked for records of owner `tweed`.
    pub link_gone: &'a dyn Fn(&Record) -> bool,
    /// The names ([`Attachment::id`]) of all attachments that the runtime
    /// knows, where it says so.
    pub listed: Option<&'a HashSet<String>>,
}

/// Whether, and why, an entry of the store is to be taken back.
///
/// An ADD or DEL whose process lives is left alone even if the runtime does not
/// list it: it ends by itself. An entry that cannot be read goes only when the
/// runtime says which ones count.
#[must_use]
pub fn verdict(entry: &Entry, evidence: &Evidence<'_>) -> Option<Reason> {
    let not_listed = evidence
        .listed
        .is_some_and(|listed| !listed.contains(&entry.id));
    let not_listed = not_listed.then_some(Reason::NotListed);
    let Some(record) = &entry.record else {
        return not_listed;
    };
    if record.boot_id != evidence.boot_id {
        return Some(Reason::OtherBoot);
    }
    match record.state {
        State::Adding { .. } => (evidence.abandoned)(record).then_some(Reason::OwnerGone),
        State::Deleting => (evidence.abandoned)(record).then_some(Reason::DelCutOff),
        State::Live => {
            let link_gone = record.owner == Owner::Tweed && (evidence.link_gone)(record);
            not_listed.or(link_gone.then_some(Reason::LinkRemoved))
        }
    }
}

/// What a pass has done.
#[derive(Debug, Default)]
pub struct Swept {
    /// What was taken back.
    pub freed: Vec<(Freed, Reason)>,
    /// Addresses whose claims had no record.
    pub void_claims: Vec<IpAddr>,
    /// What should have been and could not: the record's name, and why. It stays
    /// reserved until the next pass.
    pub failed: Vec<(String, String)>,
}

/// Frees what is provably dead. `detach` takes away what a record's attachment
/// has in the kernel; when it fails, the record stays.
///
/// # Errors
/// [`StoreError`] when the store as a whole cannot be used; what concerns one
/// record is in [`Swept::failed`].
pub fn sweep<E: fmt::Display>(
    store: &Store,
    wait: Duration,
    link_gone: impl Fn(&Record) -> bool,
    detach: impl FnMut(&Entry) -> Result<(), E>,
) -> Result<Swept, StoreError> {
    take_back(store, wait, &link_gone, None, detach)
}

/// Frees every record of the store's network that `valid` does not list, and
/// what is provably dead. Attachments of other networks in `valid` do not count;
/// an empty list frees all.
///
/// # Errors
/// As [`sweep`].
pub fn gc<E: fmt::Display>(
    store: &Store,
    wait: Duration,
    valid: &[Attachment],
    detach: impl FnMut(&Entry) -> Result<(), E>,
) -> Result<Swept, StoreError> {
    let listed = valid.iter().map(Attachment::id).collect();
    take_back(store, wait, &|_| false, Some(&listed), detach)
}

fn take_back<E: fmt::Display>(
    store: &Store,
    wait: Duration,
    link_gone: &dyn Fn(&Record) -> bool,
    listed: Option<&HashSet<String>>,
    mut detach: impl FnMut(&Entry) -> Result<(), E>,
) -> Result<Swept, StoreError> {
    let boot_id = store.boot_id()?;
    let evidence = Evidence {
        boot_id: &boot_id,
        abandoned: &|record| store.is_abandoned(record),
        link_gone,
        listed,
    };
    let mut swept = Swept::default();
    for entry in store.entries()? {
        if verdict(&entry, &evidence).is_none() {
            continue;
        }
        // A lock that is held too long ends the pass: it would be for each entry.
        let locked = store.lock(wait)?;
        match take_back_one(locked, &entry.id, &evidence, &mut detach) {
            Ok(Some(freed)) => swept.freed.push(freed),
            Ok(None) => {}
            Err(why) => swept.failed.push((entry.id, why)),
        }
    }
    if store.has_void_claims()?
        && let Some(mut locked) = store.lock_existing(wait)?
    {
        swept.void_claims = locked.drop_void_claims()?;
    }
    Ok(swept)
}

/// The lock is held throughout, the kernel's part included: a second ADD of the
/// same attachment would make a link of the same name, and lose it here.
fn take_back_one<E: fmt::Display>(
    mut locked: Locked<'_>,
    id: &str,
    evidence: &Evidence<'_>,
    detach: &mut impl FnMut(&Entry) -> Result<(), E>,
) -> Result<Option<(Freed, Reason)>, String> {
    let in_words = |error: StoreError| error.to_string();
    let Some(entry) = locked.store().entry(id) else {
        return Ok(None);
    };
    let Some(reason) = verdict(&entry, evidence) else {
        return Ok(None);
    };
    let _held = match &entry.record {
        Some(record) if record.state == State::Live => locked
            .mark_deleting(&record.attachment())
            .map_err(in_words)?,
        _ => None,
    };
    detach(&entry).map_err(|error| format!("{entry}: {error}"))?;
    let freed = locked.free_id(id).map_err(in_words)?;
    Ok(freed.map(|freed| (freed, reason)))
}
