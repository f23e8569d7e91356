//! Writing the store's files, under its lock.
//!
//! A file is replaced: its new content is written to another file, which then takes
//! the name. That needs an inode and a block, and a DEL must free addresses also where
//! there is neither: then [`Locked::write_deleting`] overwrites the record in place,
//! in a shorter form, which needs no space. What always holds then too:
//! - The old file is locked before it is overwritten, so that nobody takes this DEL
//!   for an interrupted one. An ADD or DEL that is at work holds that lock itself, and
//!   no file is overwritten while another process works on the attachment.
//! - The kernel writes a page without interruption, and a record fits into one. If a
//!   process is killed earlier or later, the record is the old or the new one. A longer
//!   record may be cut off: then it cannot be read, its addresses stay taken, and a
//!   DEL or GC frees them.
//! - A reader without the lock may see a part of both. It finds a damaged record for
//!   this moment, or the old one; whoever changes anything reads again under the lock.

use std::io::{self, ErrorKind::FileTooLarge, ErrorKind::QuotaExceeded, ErrorKind::StorageFull};
use std::path::Path;

use ipnetwork::IpNetwork;

use super::{Locked, StoreError, TEMPORARY, disk::READ_MAX, held::Held};
use crate::record::{Record, State};

impl Locked<'_> {
    pub(super) fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        let path = self.store.record_path(&record.attachment().id());
        let content = to_text(record).map_err(StoreError::io("write", &path))?;
        self.replace(&path, &content)
    }

    /// Writes a record that says that this process works on the attachment.
    pub(super) fn write_held(&mut self, record: Record) -> Result<Held, StoreError> {
        let path = self.store.record_path(&record.attachment().id());
        let content = to_text(&record).map_err(StoreError::io("write", &path))?;
        let temporary = path.with_file_name(TEMPORARY);
        let disk = &self.store.host.disk;
        let file = disk
            .write_locked(&temporary, &content)
            .map_err(|error| self.give_up(&temporary, error))
            .map_err(StoreError::io("write and lock", &temporary))?;
        disk.rename(&temporary, &path)
            .map_err(|error| self.give_up(&temporary, error))
            .map_err(StoreError::io("rename the new file to", path))?;
        Ok(Held::new(record, file))
    }

    /// Writes that this process adds the attachment of `seed`, with these addresses.
    pub(super) fn write_adding(
        &mut self,
        seed: &Record,
        addresses: Vec<IpNetwork>,
    ) -> Result<Held, StoreError> {
        self.write_held(Record {
            addresses,
            boot_id: self.boot_id.clone(),
            ..seed.clone()
        })
    }

    /// Writes that this process deletes the attachment of `record`, which is there.
    pub(super) fn write_deleting(&mut self, record: Record) -> Result<Held, StoreError> {
        let deleting = Record {
            state: State::Deleting,
            held: true,
            ..record
        };
        let refused = match self.write_held(deleting.clone()) {
            Err(refused) if refused.is_out_of_space() => refused,
            written => return written,
        };
        let path = self.store.record_path(&deleting.attachment().id());
        let content = serde_json::to_vec(&deleting)
            .map_err(|error| StoreError::io("write", &path)(error.into()))?;
        match self.store.host.disk.overwrite_locked(&path, &content) {
            Ok(file) => Ok(Held::new(deleting, file)),
            // It needs space after all: the first answer names the file system's limit.
            Err(error) if matches!(error.kind(), FileTooLarge | StorageFull | QuotaExceeded) => {
                Err(refused)
            }
            Err(error) => Err(StoreError::io("overwrite", path)(error)),
        }
    }

    /// Writes a file under another name in the same folder, then renames it.
    pub(super) fn replace(&mut self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        self.replace_after(path, content, |_| Ok(()))
    }

    /// As [`Locked::replace`], with the content on the disk before the file has its
    /// name, and both before anything else is written. After a power failure any other
    /// file may be empty.
    pub(super) fn replace_synced(&mut self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        let disk = &self.store.host.disk;
        let folder = &self.store.folder;
        self.replace_after(path, content, |written| disk.sync(written))?;
        disk.sync(folder).map_err(StoreError::io("sync", folder))
    }

    fn replace_after(
        &self,
        path: &Path,
        content: &[u8],
        before_rename: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let temporary = path.with_file_name(TEMPORARY);
        let disk = &self.store.host.disk;
        disk.write(&temporary, content)
            .and_then(|()| before_rename(&temporary))
            .map_err(|error| self.give_up(&temporary, error))
            .map_err(StoreError::io("write", &temporary))?;
        disk.rename(&temporary, path)
            .map_err(|error| self.give_up(&temporary, error))
            .map_err(StoreError::io("rename the new file to", path))
    }

    /// Removes a file that was not written or renamed, as it keeps an inode from
    /// others; returns why it was not.
    fn give_up(&self, temporary: &Path, error: io::Error) -> io::Error {
        // Locked by another process, it is that one's.
        if error.kind() != io::ErrorKind::WouldBlock {
            let _ = self.store.host.disk.remove(temporary);
        }
        error
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.store.host.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }
}

fn to_text(record: &Record) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    if text.len() as u64 > READ_MAX {
        // Nobody could read it.
        let problem = "the record of this attachment is larger than 64 KiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(text)
}
