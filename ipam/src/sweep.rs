//! Freeing records whose owner no longer exists.
//!
//! [`verdict`] decides, purely; [`sweep`] (the agent, and GC without a list) and
//! [`gc`] (GC with one) carry it out. What always holds: a verdict is reached again
//! under the lock before a record is changed; a live record is marked as deleting,
//! its link is deleted, then its addresses become free, in this order, so that no
//! attachment gets an address that a link still uses, and the next sweep completes
//! one that was interrupted.

use std::{collections::HashSet, fmt, net::IpAddr, time::Duration};

use crate::record::{Owner, Record, State};
use crate::store::{Entry, Freed, Locked, Store, StoreError};
use tweed_core::attachment::Attachment;

/// Why a record is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was written before the machine was started.
    OtherBoot,
    /// Its ADD was interrupted: the process has ended.
    OwnerGone,
    /// Its DEL was interrupted. A DEL that holds no lock may still be running, and
    /// then has nothing left to do.
    DelInterrupted,
    /// Its link existed in this boot and no longer does.
    LinkGone,
    /// The runtime no longer lists the attachment.
    NotListed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherBoot => "it is of another boot",
            Self::OwnerGone => "the process that added it has ended",
            Self::DelInterrupted => "its DEL was interrupted",
            Self::LinkGone => "its link is gone",
            Self::NotListed => "the runtime does not list it",
        })
    }
}

/// What the verdict depends on besides the record.
pub struct Evidence<'a> {
    /// The current boot.
    pub boot_id: &'a str,
    /// Whether no process works any longer on a record that is being added or
    /// deleted: [`Store::is_abandoned`].
    pub abandoned: &'a dyn Fn(&Record) -> bool,
    /// Whether the link of a record existed in this boot and no longer does. Only
    /// called for records of owner `tweed`.
    pub link_gone: &'a dyn Fn(&Record) -> bool,
    /// The names ([`Attachment::id`]) of all attachments that the runtime
    /// knows, if it has given a list.
    pub listed: Option<&'a HashSet<String>>,
}

/// Whether, and why, an entry of the store must be freed.
///
/// An ADD or DEL whose process is running is left alone even if the runtime does not
/// list it: it ends by itself. An entry that cannot be read is freed only if there is
/// a list and it is not on it.
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
        State::Deleting => (evidence.abandoned)(record).then_some(Reason::DelInterrupted),
        State::Live => {
            let link_gone = record.owner == Owner::Tweed && (evidence.link_gone)(record);
            not_listed.or(link_gone.then_some(Reason::LinkGone))
        }
    }
}

/// What a sweep has done.
#[derive(Debug, Default)]
pub struct Swept {
    /// The freed records, with the reason.
    pub freed: Vec<(Freed, Reason)>,
    /// Addresses whose claims had no record.
    pub void_claims: Vec<IpAddr>,
    /// Records that could not be freed: name and cause. Their addresses stay
    /// reserved until the next sweep.
    pub failed: Vec<(String, String)>,
}

/// Frees records whose owner is provably gone. `detach` removes what a record's
/// attachment has in the kernel; if it fails, the record stays.
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
    free_entries(store, wait, &link_gone, None, detach)
}

/// Frees every record of the store's network that `valid` does not list, and those
/// whose owner is provably gone. Attachments of other networks in `valid` do not
/// count; an empty list frees everything.
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
    free_entries(store, wait, &|_| false, Some(&listed), detach)
}

fn free_entries<E: fmt::Display>(
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
        // A timeout ends the sweep, as each further entry would wait as long.
        let locked = store.lock(wait)?;
        match free_entry(locked, &entry.id, &evidence, &mut detach) {
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

/// Holds the lock while `detach` changes the kernel: otherwise a second ADD of the
/// same attachment could create a link of the same name, which would be deleted here.
fn free_entry<E: fmt::Display>(
    mut locked: Locked<'_>,
    id: &str,
    evidence: &Evidence<'_>,
    detach: &mut impl FnMut(&Entry) -> Result<(), E>,
) -> Result<Option<(Freed, Reason)>, String> {
    let to_text = |error: StoreError| error.to_string();
    let Some(entry) = locked.store().entry(id) else {
        return Ok(None);
    };
    let Some(reason) = verdict(&entry, evidence) else {
        return Ok(None);
    };
    let _held = match &entry.record {
        Some(record) if record.state == State::Live => locked
            .mark_deleting(&record.attachment())
            .map_err(to_text)?,
        _ => None,
    };
    detach(&entry).map_err(|error| format!("{entry}: {error}"))?;
    let freed = locked.free_id(id).map_err(to_text)?;
    Ok(freed.map(|freed| (freed, reason)))
}
