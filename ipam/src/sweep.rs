//! Freeing records whose owner no longer exists.
//!
//! [`verdict`] decides, purely; [`sweep`] (the agent, GC without a list, an ADD that finds
//! no address) and [`gc`] (GC with one) carry it out. What always holds: a verdict is reached again
//! under the lock, for the boot that then is the current one, before a record is
//! changed; a live record is marked as deleting, its link is deleted, then its addresses
//! become free, in this order, so that no attachment gets an address that a link still
//! uses, and the next sweep completes one that was interrupted. Addresses of another IPAM plugin are given back to it
//! before their record is freed; who cannot do that leaves the record alone.

use std::{collections::HashSet, fmt, net::IpAddr, path::PathBuf, time::Duration};

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
    /// [`Removal::releases`].
    pub releases: bool,
    /// The names ([`Attachment::id`]) of all attachments that the runtime
    /// knows, if it has given a list.
    pub listed: Option<&'a HashSet<String>>,
}

/// Whether, and why, an entry of the store must be freed.
///
/// An ADD or DEL whose process is running is left alone even if the runtime does not
/// list it: it ends by itself. An entry that cannot be read is freed only if there is
/// a list and it is not on it.
pub fn verdict(entry: &Entry, evidence: &Evidence<'_>) -> Option<Reason> {
    let not_listed = evidence
        .listed
        .is_some_and(|listed| !listed.contains(&entry.id))
        .then_some(Reason::NotListed);
    let Some(record) = &entry.record else {
        return not_listed;
    };
    if record.boot_id != evidence.boot_id {
        return Some(Reason::OtherBoot);
    }
    if record.ipam.is_some() && !evidence.releases {
        return None;
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

/// Removes what an attachment has outside of the store. A closure is one that only
/// detaches.
pub trait Removal {
    /// Why it cannot be removed.
    type Error: fmt::Display;

    /// Removes what it has in the kernel, while the store is locked.
    ///
    /// # Errors
    /// Then the record stays.
    fn detach(&mut self, entry: &Entry) -> Result<(), Self::Error>;

    /// Whether [`Removal::release`] gives addresses back. Without it, records with
    /// addresses of another IPAM plugin are left alone.
    fn releases(&self) -> bool {
        false
    }

    /// Gives the addresses of `record` back to the IPAM plugin that gave them, while
    /// the store is not locked, as that plugin may use the same lock.
    ///
    /// # Errors
    /// Then the record stays.
    fn release(&mut self, _record: &Record) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl<F, E> Removal for F
where
    F: FnMut(&Entry) -> Result<(), E>,
    E: fmt::Display,
{
    type Error = E;

    fn detach(&mut self, entry: &Entry) -> Result<(), E> {
        self(entry)
    }
}

/// Why a record was not freed.
#[derive(Debug)]
pub enum Cause<E> {
    /// The store cannot be used.
    Store(StoreError),
    /// What the attachment has outside of the store cannot be removed.
    Removal(E),
}

/// A record that was not freed. Its addresses stay reserved until the next sweep.
#[derive(Debug)]
pub struct Failed<E> {
    /// [`Attachment::id`].
    pub id: String,
    /// The attachment, for people.
    pub attachment: String,
    /// Why.
    pub cause: Cause<E>,
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Store(error) => write!(f, "{}: {error}", self.attachment),
            Cause::Removal(error) => write!(f, "{}: {error}", self.attachment),
        }
    }
}

/// What a sweep has done.
#[derive(Debug)]
pub struct Swept<E> {
    /// The freed records, with the reason.
    pub freed: Vec<(Freed, Reason)>,
    /// Addresses whose claims had neither a record nor a link.
    pub void_claims: Vec<IpAddr>,
    /// Files of host-local that were removed, as the runtime does not list their
    /// attachments.
    pub host_local: Vec<PathBuf>,
    /// Records that could not be freed.
    pub failed: Vec<Failed<E>>,
    /// Why the sweep ended early, as when the lock could not be had in time. What is
    /// above was done before.
    pub stopped: Option<StoreError>,
}

/// Frees records whose owner is provably gone. `removal` removes what a record's
/// attachment has elsewhere; if it fails, the record stays.
///
/// # Errors
/// [`StoreError`] when the store cannot be read, and nothing was freed. What concerns one
/// record is in [`Swept::failed`], what ended the sweep in [`Swept::stopped`].
pub fn sweep<R: Removal>(
    store: &Store,
    wait: Duration,
    link_gone: impl Fn(&Record) -> bool,
    removal: R,
) -> Result<Swept<R::Error>, StoreError> {
    free_entries(store, wait, &link_gone, None, removal)
}

/// Frees every record of the store's network that `valid` does not list, and those
/// whose owner is provably gone; then what host-local gave to attachments that are
/// neither listed nor recorded, as it may have leaked. Attachments of other networks in `valid` do not
/// count; an empty list frees everything.
///
/// # Errors
/// As [`sweep`].
pub fn gc<R: Removal>(
    store: &Store,
    wait: Duration,
    valid: &[Attachment],
    removal: R,
) -> Result<Swept<R::Error>, StoreError> {
    let listed = valid.iter().map(Attachment::id).collect();
    let mut swept = free_entries(store, wait, &|_| false, Some(&listed), removal)?;
    if swept.stopped.is_none() {
        match store.free_unlisted_host_local(valid, wait) {
            Ok(removed) => swept.host_local = removed,
            Err(error) => swept.stopped = Some(error),
        }
    }
    Ok(swept)
}

fn free_entries<R: Removal>(
    store: &Store,
    wait: Duration,
    link_gone: &dyn Fn(&Record) -> bool,
    listed: Option<&HashSet<String>>,
    mut removal: R,
) -> Result<Swept<R::Error>, StoreError> {
    let boot_id = store.boot_id()?;
    let evidence = Evidence {
        boot_id: &boot_id,
        abandoned: &|record| store.is_abandoned(record),
        link_gone,
        releases: removal.releases(),
        listed,
    };
    let entries = store.entries()?;
    let mut swept = Swept {
        freed: Vec::new(),
        void_claims: Vec::new(),
        host_local: Vec::new(),
        failed: Vec::new(),
        stopped: None,
    };
    // What was freed until then is done, and the caller has to hear of it.
    swept.stopped = free_each(store, wait, entries, &evidence, &mut removal, &mut swept).err();
    Ok(swept)
}

/// Frees the entries whose verdict says so, then claims that are void.
///
/// # Errors
/// What ends the sweep.
fn free_each<R: Removal>(
    store: &Store,
    wait: Duration,
    entries: Vec<Entry>,
    evidence: &Evidence<'_>,
    removal: &mut R,
    swept: &mut Swept<R::Error>,
) -> Result<(), StoreError> {
    for entry in entries {
        if verdict(&entry, evidence).is_none() {
            continue;
        }
        // A timeout ends the sweep, as each further entry would wait as long.
        let Some(locked) = store.lock_existing(wait)? else {
            break;
        };
        match free_entry(locked, wait, &entry.id, evidence, removal) {
            Ok(Some(freed)) => swept.freed.push(freed),
            Ok(None) => {}
            Err(cause) => swept.failed.push(Failed {
                attachment: entry.to_string(),
                id: entry.id,
                cause,
            }),
        }
    }
    if store.has_void_claims()?
        && let Some(mut locked) = store.lock_existing(wait)?
    {
        swept.void_claims = locked.drop_void_claims()?;
    }
    Ok(())
}

/// Holds the lock while the kernel is changed: otherwise a second ADD of the same
/// attachment could create a link of the same name, which would be deleted here.
fn free_entry<R: Removal>(
    mut locked: Locked<'_>,
    wait: Duration,
    id: &str,
    evidence: &Evidence<'_>,
    removal: &mut R,
) -> Result<Option<(Freed, Reason)>, Cause<R::Error>> {
    let store = locked.store();
    let Some(entry) = store.entry(id) else {
        return Ok(None);
    };
    // A record that was written meanwhile may show that another boot ID counts.
    let boot_id = locked.boot_id().to_owned();
    let evidence = Evidence {
        boot_id: &boot_id,
        ..*evidence
    };
    let Some(reason) = verdict(&entry, &evidence) else {
        return Ok(None);
    };
    let held = match &entry.record {
        Some(record) if record.state == State::Live || evidence.releases => locked
            .mark_deleting(&record.attachment())
            .map_err(Cause::Store)?,
        _ => None,
    };
    removal.detach(&entry).map_err(Cause::Removal)?;
    if let Some(held) = held.as_ref().filter(|_| evidence.releases) {
        // The record, which is locked, keeps every other process away meanwhile.
        drop(locked);
        removal.release(held).map_err(Cause::Removal)?;
        match store.lock_existing(wait).map_err(Cause::Store)? {
            Some(again) => locked = again,
            None => return Ok(None),
        }
    }
    let freed = locked.free_id(id).map_err(Cause::Store)?;
    Ok(freed.map(|freed| (freed, reason)))
}
