//! Whether a process is working on an attachment.
//!
//! A process that adds or deletes holds flock(2) on the file of the record that says
//! so: on the inode, which is locked before it gets the record's name or, where a DEL
//! overwrites a record in place (writing.rs), before it says so. What always holds: the
//! lock is released only when the record's name no longer leads to that inode, or by
//! the end of the process. So a process that gets a lock on the file, and finds it
//! still under its name, knows that the other process has ended. It needs no process
//! number, so an agent in its own PID namespace can tell too.

use std::fs::{self, File};
use std::io::{self, Read};
use std::{ops::Deref, path::Path};

use super::disk::READ_MAX;
use super::open::options;
use super::{Store, StoreError, lock};
use crate::record::{Made, Record, State};

/// A record that says that this process is working on the attachment, and the lock
/// that proves it, which is released on drop.
#[derive(Debug)]
#[must_use = "when it is dropped, other processes regard the ADD or DEL as interrupted"]
pub struct Held {
    record: Record,
    pub(super) file: File,
}

impl Held {
    pub(super) fn new(record: Record, file: File) -> Self {
        Self { record, file }
    }

    /// Sets what the ADD did; [`Store::mark_live`] writes it.
    pub fn set_made(&mut self, made: Made) {
        self.record.made = Some(made);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing the file is not enough while another thread starts a program: its
        // child has a copy of the file until exec. If unlocking fails, closing
        // releases the lock.
        let _ = self.file.unlock();
    }
}

impl Deref for Held {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Store {
    /// Whether it is certain that no process works any longer on an attachment whose
    /// record says that it is being added or deleted. If that cannot be determined,
    /// one does. No process works on a live record, but it is not abandoned.
    pub fn is_abandoned(&self, record: &Record) -> bool {
        let path = self.record_path(&record.attachment().id());
        record.state != State::Live && is_released(&path, record).unwrap_or(false)
    }
}

/// The error for a record on which another process works.
pub(super) fn in_progress(record: &Record) -> StoreError {
    let attachment = record.attachment().to_string();
    match record.state {
        State::Adding { by } => StoreError::AddInProgress {
            attachment,
            pid: by.pid,
        },
        State::Live | State::Deleting => StoreError::DelInProgress { attachment },
    }
}

/// Whether the file at `path` is `record`, and no process holds its lock.
fn is_released(path: &Path, record: &Record) -> io::Result<bool> {
    let file = options().read(true).open(path)?;
    // Shared, so that two processes that test the lock at the same time do not take
    // each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(false),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    let mut content = Vec::new();
    (&file).take(READ_MAX).read_to_end(&mut content)?;
    // The lock proves nothing if the file is another record of the same name, or an
    // old one that its owner released because it wrote the next.
    let is_same = serde_json::from_slice::<Record>(&content).is_ok_and(|found| found == *record);
    Ok(is_same && lock::is_at(&file, path)?)
}
