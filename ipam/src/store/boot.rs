//! Which boot a store belongs to.
//!
//! What a store holds is void after a reboot, and the boot ID shows that there was
//! one. But the programs of a machine need not read the same ID: LXC, Incus and
//! systemd-nspawn bind a random one over the kernel's, which the plugin of such a node
//! reads, while an agent in a container with a new `/proc` reads the kernel's.
//!
//! So a store with another boot ID is void only if nothing shows that it is in use:
//! the link of a record, its network namespace where another plugin makes the link, or
//! the lock of an ADD or DEL. None of them outlives a reboot. A namespace's path may be
//! there again (`ip netns add` at boot, `/proc/<pid>/ns/net`), so it counts only for a
//! record that was written since the machine was started. Where one of them is there,
//! the store's own ID is the one that counts, for every program that reads or writes
//! it, and nothing is removed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::load::{Loaded, load};
use super::reading;
use super::{ATTACHMENTS, BOOT_ID, Store, StoreError};
use crate::record::{Record, State};
use tweed_core::uptime::is_older_than_boot;

/// A store of this boot whose boot ID is not the one that this process reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherBootId {
    /// The ID that this process reads.
    pub here: String,
    /// The ID in the store, which the other programs read.
    pub in_store: String,
}

/// The boot that counts for a store.
#[derive(Debug)]
pub(super) struct Boot {
    /// The boot ID of its records: one with another ID is void.
    pub(super) id: String,
    /// The boot ID in its folder; none if there is no valid one.
    pub(super) in_folder: Option<String>,
}

impl Boot {
    /// Whether the folder has the boot ID of another boot.
    pub(super) fn is_another_in_the_folder(&self) -> bool {
        self.in_folder.as_ref().is_some_and(|id| *id != self.id)
    }
}

impl Store {
    /// The boot ID of this store's records.
    pub(crate) fn boot_id(&self) -> Result<String, StoreError> {
        Ok(self.boot()?.id)
    }

    pub(super) fn boot(&self) -> Result<Boot, StoreError> {
        let here = self.boot_id_here()?;
        let in_folder = parse(&self.host.disk.read(&self.path(BOOT_ID)).unwrap_or_default());
        let other = if in_folder.as_ref() == Some(&here) {
            None
        } else {
            self.boot_id_in_use(&here)?
        };
        Ok(Boot {
            id: other.unwrap_or(here),
            in_folder,
        })
    }

    /// The store's boot ID, if it is not the one that this process reads although the
    /// store is in use: then the two read different files.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::NoBootId`].
    pub fn other_boot_id(&self) -> Result<Option<OtherBootId>, StoreError> {
        let here = self.boot_id_here()?;
        let in_store = self.boot_id()?;
        Ok((here != in_store).then_some(OtherBootId { here, in_store }))
    }

    fn boot_id_here(&self) -> Result<String, StoreError> {
        let path = &self.host.boot_id;
        let read = self.host.disk.read(path);
        let content = read.map_err(StoreError::io("read", path))?;
        parse(&content).ok_or_else(|| StoreError::NoBootId {
            path: path.clone(),
            content: String::from_utf8_lossy(&content).into_owned(),
        })
    }

    /// The boot ID of a record that is in use; none if that is `here` or no record is.
    fn boot_id_in_use(&self, here: &str) -> Result<Option<String>, StoreError> {
        for (name, _) in self.list_or_empty(self.path(ATTACHMENTS))? {
            let Some(id) = name.to_str().filter(|name| reading::is_id(name)) else {
                continue;
            };
            match load(self, id) {
                Loaded::Record(record) if record.boot_id == here => return Ok(None),
                Loaded::Record(record) if self.is_in_use(&record) => {
                    return Ok(Some(record.boot_id));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Whether something shows that `record` was written since the machine was
    /// started. If nothing does, it need not be void.
    pub(super) fn is_in_use(&self, record: &Record) -> bool {
        let is_there = || match (&record.link, &record.netns) {
            (Some(link), _) => (self.host.has_link)(link),
            (None, Some(netns)) => {
                let path = self.record_path(&record.attachment().id());
                is_another_namespace(netns) && !is_older_than_boot(&path)
            }
            (None, None) => false,
        };
        let is_worked_on = || record.state != State::Live && !self.is_abandoned(record);
        is_there() || is_worked_on()
    }

    /// The same of a record that is gone, or cannot be read: only its link can show it.
    pub(super) fn has_link_of(&self, id: &str) -> bool {
        (self.host.has_link)(&reading::link_name_of(id))
    }
}

/// Whether `path` leads to a network namespace that is not the caller's.
fn is_another_namespace(path: &str) -> bool {
    match (fs::metadata("/proc/thread-self/ns/net"), fs::metadata(path)) {
        // All namespaces are files of one file system.
        (Ok(own), Ok(there)) => own.dev() == there.dev() && own.ino() != there.ino(),
        _ => false,
    }
}

/// A UUID and a newline: random(4).
fn parse(content: &[u8]) -> Option<String> {
    let id = std::str::from_utf8(content).ok()?.trim_end();
    let is_uuid = id.len() == 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_uuid.then(|| id.to_owned())
}
