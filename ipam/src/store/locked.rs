//! Changes of the store, which need its lock.

use std::time::{Duration, Instant};
use std::{collections::HashSet, fmt, fs::File, io, net::IpAddr};

use ipnetwork::IpNetwork;

use super::held::{self, Held, in_progress};
use super::load::{Loaded, load};
use super::{ATTACHMENTS, BOOT_ID, LOCK, Store, StoreError};
use super::{lock, open::options, reading};
use crate::record::{Record, State};
use tweed_core::attachment::Attachment;

/// What was removed from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// [`Attachment::id`] of the attachment.
    pub id: String,
    /// Its record; absent when there was none, or no file that could be read as one.
    pub record: Option<Record>,
    /// The addresses that can be given again.
    pub addresses: Vec<IpAddr>,
}

impl Freed {
    /// Whether the store had given every address of the attachment. Otherwise another
    /// IPAM plugin may have.
    pub fn is_complete(&self) -> bool {
        self.record.as_ref().is_some_and(|record| {
            record.ipam.is_none()
                && !record.addresses.is_empty()
                && record.addresses.len() == self.addresses.len()
        })
    }
}

impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => record.attachment().fmt(f),
            None => write!(f, "attachments/{}", self.id),
        }
    }
}

/// The store while this process holds its lock, which is released on drop.
#[derive(Debug)]
pub struct Locked<'s> {
    pub(super) store: &'s Store,
    pub(super) boot_id: String,
    _lock: File,
}

impl<'s> Locked<'s> {
    pub(super) fn begin(store: &'s Store, lock: File) -> Result<Self, StoreError> {
        let boot = store.boot()?;
        let mut locked = Self {
            store,
            boot_id: boot.id,
            _lock: lock,
        };
        if boot.in_folder.as_ref() != Some(&locked.boot_id) {
            locked.purge(boot.in_folder.is_some())?;
            let content = format!("{}\n", locked.boot_id);
            match locked.replace_synced(&store.path(BOOT_ID), content.as_bytes()) {
                // The contents of another boot are removed already. The next process
                // tries again; an ADD fails when it writes its record.
                Err(error) if error.is_out_of_space() => {}
                written => written?,
            }
        }
        Ok(locked)
    }

    /// Continues with a lock that this process has taken once more in this boot.
    pub(super) fn resume(store: &'s Store, boot_id: String, lock: File) -> Self {
        Self {
            store,
            boot_id,
            _lock: lock,
        }
    }

    /// Removes the contents of another boot, but nothing that is in use (boot.rs). A
    /// record has its own boot ID; one that cannot be read is removed only if the
    /// folder's boot ID is that of another boot. The cursors stay, so that addresses
    /// are not given again soon.
    fn purge(&mut self, of_another_boot: bool) -> Result<(), StoreError> {
        let mut void = Vec::new();
        let mut kept = HashSet::new();
        for (name, _) in self.store.list_or_empty(self.store.path(ATTACHMENTS))? {
            let Some(id) = name.to_str().filter(|name| reading::is_id(name)) else {
                continue;
            };
            let is_void = match load(self.store, id) {
                Loaded::Missing => continue,
                Loaded::Record(record) => {
                    record.boot_id != self.boot_id && !self.store.is_in_use(&record)
                }
                Loaded::Damaged(_) | Loaded::Unreadable(_) => {
                    of_another_boot && !self.store.has_link_of(id)
                }
            };
            if is_void {
                void.push(id.to_owned());
            } else {
                kept.insert(id.to_owned());
            }
        }
        for (address, id) in self.store.claims()? {
            if !kept.contains(&id) && !self.store.has_link_of(&id) {
                self.remove(&self.store.claim_path(address))?;
            }
        }
        for id in void {
            match self.remove(&self.store.record_path(&id)) {
                // It does not belong to the store although it is named like a record.
                Err(StoreError::Io { error, .. })
                    if error.kind() == io::ErrorKind::IsADirectory => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The store.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// The boot ID of this store's records: under the lock it does not change.
    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The record of `attachment`, as [`Store::read`]; under the lock it does not
    /// change.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read(&self, attachment: &Attachment) -> Result<Option<Record>, StoreError> {
        let record = self.store.read_any_boot(attachment)?;
        Ok(record.filter(|record| record.boot_id == self.boot_id))
    }

    /// Records an attachment whose addresses a delegated IPAM plugin gives. The process
    /// that adds may call it again, to record the addresses. They are claimed, so that
    /// the store does not give them to others once the config names it instead. An
    /// address with an entry stays as it is: it is taken already, as by that plugin's own
    /// file in the same folder. But a claim of an earlier attachment, whose DEL the
    /// plugin has done, becomes that of this one.
    ///
    /// # Errors
    /// [`StoreError::Attached`], [`StoreError::AddInProgress`],
    /// [`StoreError::DelInProgress`], [`StoreError::Damaged`] when the attachment
    /// has a record already; [`StoreError::Io`].
    pub fn track(&mut self, seed: &Record, addresses: Vec<IpNetwork>) -> Result<Held, StoreError> {
        let attachment = seed.attachment();
        let found = self.read(&attachment)?;
        if !found.is_some_and(|record| record.state == seed.state) {
            self.supersede(&attachment)?;
        }
        let record = self.write_adding(seed, addresses)?;
        for address in &record.addresses {
            self.drop_delegated_claim(address.ip())?;
            match self.claim(&record, address.ip()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    let path = self.store.claim_path(address.ip());
                    return Err(StoreError::io("claim", path)(error));
                }
                _ => {}
            }
        }
        Ok(record)
    }

    /// Removes the claim on an address if another IPAM plugin gave it to who has it.
    fn drop_delegated_claim(&mut self, address: IpAddr) -> Result<(), StoreError> {
        let Some(id) = self.store.claimed_by(address)? else {
            return Ok(());
        };
        match load(self.store, &id) {
            Loaded::Record(record) if record.ipam.is_some() => {
                self.remove(&self.store.claim_path(address))
            }
            _ => Ok(()),
        }
    }

    /// Completes an ADD: writes `record` as live. Only after this may the [`Held`] be
    /// dropped.
    ///
    /// # Errors
    /// [`StoreError::RecordLost`] when the store no longer has the record of this
    /// ADD: then another attachment may have its addresses, and the ADD must fail.
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn mark_live(&mut self, record: &Record) -> Result<Record, StoreError> {
        let attachment = record.attachment();
        let found = self.read(&attachment)?;
        let is_the_same = |found: &Record| {
            found.state == record.state
                && matches!(found.state, State::Adding { .. })
                && found.addresses == record.addresses
        };
        if !found.as_ref().is_some_and(is_the_same) {
            return Err(StoreError::RecordLost {
                attachment: attachment.to_string(),
                found: found.map(|found| found.state),
            });
        }
        self.write_live(record)
    }

    pub(super) fn write_live(&mut self, record: &Record) -> Result<Record, StoreError> {
        let live = Record {
            state: State::Live,
            held: false,
            ..record.clone()
        };
        self.write(&live)?;
        Ok(live)
    }

    /// Begins a DEL: from here on the agent no longer repairs the attachment, and
    /// only this DEL completes it, or another one or a GC if it is interrupted.
    /// Returns the record; none if there is none or it cannot be read as one: then
    /// the link's name still follows from [`Attachment`], and [`Locked::free`]
    /// removes the file.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn mark_deleting(&mut self, attachment: &Attachment) -> Result<Option<Held>, StoreError> {
        let record = match self.read(attachment) {
            Ok(Some(record)) => record,
            Ok(None) | Err(StoreError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.write_deleting(record).map(Some)
    }

    /// As [`Locked::mark_deleting`] if an ADD or a DEL of `attachment` was
    /// interrupted, or if `link_gone` says of its live record that its link is gone, so
    /// that the caller can remove what it left; otherwise nothing.
    ///
    /// # Errors
    /// As [`Locked::read`]; [`StoreError::Io`].
    pub fn take_over_abandoned(
        &mut self,
        attachment: &Attachment,
        link_gone: impl FnOnce(&Record) -> bool,
    ) -> Result<Option<Held>, StoreError> {
        let is_over = |record: &Record| match record.state {
            State::Live => link_gone(record),
            State::Adding { .. } | State::Deleting => self.store.is_abandoned(record),
        };
        match self.read(attachment)? {
            Some(record) if is_over(&record) => self.mark_deleting(attachment),
            _ => Ok(None),
        }
    }

    /// Completes a DEL: removes the record, after which the addresses can be given
    /// again. None if there was neither a record nor a claim.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn free(&mut self, attachment: &Attachment) -> Result<Option<Freed>, StoreError> {
        self.free_id(&attachment.id())
    }

    /// As [`Locked::free`], by the record's name, for records that cannot be read.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn free_id(&mut self, id: &str) -> Result<Option<Freed>, StoreError> {
        let (record, listed) = match load(self.store, id) {
            Loaded::Missing => match self.store.claims_of(id)? {
                none if none.is_empty() => return Ok(None),
                // Somebody has removed the record while its pod was there.
                left => (None, left),
            },
            Loaded::Record(record) => {
                let listed: Vec<IpAddr> = record.addresses.iter().map(IpNetwork::ip).collect();
                (Some(*record), listed)
            }
            Loaded::Damaged(_) => (None, self.store.claims_of(id)?),
            Loaded::Unreadable(error) => {
                return Err(StoreError::io("read", self.store.record_path(id))(error));
            }
        };
        // Only addresses on which it has a claim: an ADD may have been interrupted
        // before its claim, and another attachment may have the address by now.
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in listed {
            if self.store.claimed_by(address)?.as_deref() == Some(id) {
                addresses.push(address);
            }
        }
        // If this is interrupted between the claims and the record, a live record
        // would list addresses that other attachments may get.
        let _held = match &record {
            Some(record) if record.state == State::Live => {
                Some(self.write_deleting(record.clone())?)
            }
            _ => None,
        };
        for address in &addresses {
            self.remove(&self.store.claim_path(*address))?;
        }
        self.remove(&self.store.record_path(id))?;
        Ok(Some(Freed {
            id: id.to_owned(),
            record,
            addresses,
        }))
    }

    /// Removes void claims: those with neither a record nor a link, or whose record
    /// does not list them. ADD and DEL leave none, but a person may.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn drop_void_claims(&mut self) -> Result<Vec<IpAddr>, StoreError> {
        let mut dropped = Vec::new();
        for (address, id) in self.store.claims()? {
            if self.store.is_void(address, &id) {
                self.remove(&self.store.claim_path(address))?;
                dropped.push(address);
            }
        }
        Ok(dropped)
    }

    /// Frees what an interrupted ADD or DEL of the same attachment left, before
    /// another ADD. A live record, or one on which a process works, is an error.
    pub(super) fn supersede(&mut self, attachment: &Attachment) -> Result<(), StoreError> {
        let Some(record) = self.store.read_any_boot(attachment)? else {
            return Ok(());
        };
        if record.boot_id == self.boot_id {
            match record.state {
                State::Live => {
                    return Err(StoreError::Attached {
                        attachment: attachment.to_string(),
                        addresses: record.addresses.iter().map(IpNetwork::ip).collect(),
                    });
                }
                State::Adding { .. } | State::Deleting if !self.store.is_abandoned(&record) => {
                    return Err(held::in_progress(&record));
                }
                State::Adding { .. } | State::Deleting => {}
            }
        }
        self.free(attachment)?;
        Ok(())
    }
}

impl Store {
    /// Takes the lock and completes an ADD, as [`Locked::mark_live`]. Neither boot ID
    /// nor record is read again: `held` proves that this process wrote the record in
    /// this boot, and it has not been replaced while its name leads to the same file.
    ///
    /// # Errors
    /// As [`Store::lock`] and [`Locked::mark_live`].
    pub fn mark_live(&self, held: &Held, wait: Duration) -> Result<Record, StoreError> {
        let file = lock::take(&self.path(LOCK), wait, lock::Purpose::Add)?;
        let path = self.record_path(&held.attachment().id());
        if lock::is_at(&held.file, &path).map_err(StoreError::io("look up", path))? {
            Locked::resume(self, held.boot_id.clone(), file).write_live(held)
        } else {
            Locked::begin(self, file)?.mark_live(held)
        }
    }

    /// As [`Store::lock_existing`], after no other process works on `attachment`.
    ///
    /// # Errors
    /// As [`Store::lock`]; [`StoreError::AddInProgress`],
    /// [`StoreError::DelInProgress`] when one still does after `wait`.
    pub fn lock_idle(
        &self,
        attachment: &Attachment,
        wait: Duration,
    ) -> Result<Option<Locked<'_>>, StoreError> {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(locked) = self.lock_existing(left)? else {
                return Ok(None);
            };
            let busy = match locked.read(attachment) {
                Ok(Some(record)) if record.state != State::Live && !self.is_abandoned(&record) => {
                    record
                }
                // The caller handles a record that cannot be read. No process works
                // on a live record.
                _ => return Ok(Some(locked)),
            };
            // The process that works on it needs the lock to finish.
            drop(locked);
            let path = self.record_path(&attachment.id());
            let file = match options().read(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StoreError::io("open", path)(error)),
            };
            let is_released = lock::wait_for(&file, lock::Mode::Shared, deadline)
                .map_err(StoreError::io("lock", path))?;
            // The deadline also ends the wait for a record that is never released
            // although its lock can be taken.
            if !is_released || Instant::now() >= deadline {
                return Err(in_progress(&busy));
            }
        }
    }
}
