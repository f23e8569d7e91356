//! Whether somebody is at work on an attachment.
//!
//! Who adds or deletes holds flock(2) on the file of the record that says so: on
//! the inode, which is locked before it gets the record's name. What always
//! holds: the lock is let go only when the record's name no longer leads to that
//! inode, or by the end of the process. So who gets a lock on the file, and finds
//! it still under its name, knows that the process is gone. Numbers of processes
//! are not needed, and an agent in a PID namespace of its own can tell too.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::disk::READ_MAX;
use super::{LOCK, Locked, Store, StoreError, lock};
use crate::record::{Record, State};
use tweed_core::attachment::Attachment;

/// A record that says that this process is at work, and the lock that proves it:
/// let go when this is dropped.
#[derive(Debug)]
#[must_use = "when it is dropped, whoever looks takes the ADD or DEL for cut off"]
pub struct Held {
    record: Record,
    file: File,
}

impl Held {
    pub(super) fn new(record: Record, file: File) -> Self {
        Self { record, file }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing is not enough where another thread is about to run a program:
        // its child has a copy until then. Without effect the closing does it.
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
    /// Whether it is certain that nobody is at work any more on an attachment
    /// whose record says that it is being added or deleted. Whatever cannot be
    /// judged from here counts as work; a live record is nobody's work.
    #[must_use]
    pub fn is_abandoned(&self, record: &Record) -> bool {
        match record.state {
            State::Live => false,
            State::Adding { .. } | State::Deleting if record.held => {
                let path = self.record_path(&record.attachment().id());
                is_let_go(&path, record).unwrap_or(false)
            }
            State::Adding { by } => by.is_provably_gone(),
            // Without a lock there is no telling, and a DEL loses nothing by
            // finding its work done.
            State::Deleting => true,
        }
    }

    /// Takes the lock and ends an ADD, as [`Locked::mark_live`]. Neither boot nor
    /// record is read again: `held` proves that this process wrote it in this boot,
    /// and nobody has replaced it as long as it has its name.
    ///
    /// # Errors
    /// As [`Store::lock`] and [`Locked::mark_live`].
    pub fn mark_live(&self, held: &Held, wait: Duration) -> Result<Record, StoreError> {
        let file = lock::take(&self.path(LOCK), wait)?;
        let path = self.record_path(&held.attachment().id());
        if lock::is_at(&held.file, &path).map_err(StoreError::io("look at", path))? {
            Locked::resume(self, held.boot_id.clone(), file).write_live(held)
        } else {
            Locked::begin(self, file)?.mark_live(held)
        }
    }

    /// As [`Store::lock_existing`], once nobody else is at work on `attachment`.
    ///
    /// # Errors
    /// As [`Store::lock`]; [`StoreError::AddUnderWay`],
    /// [`StoreError::DelUnderWay`] when somebody still is after `wait`.
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
                Ok(Some(record))
                    if record.held
                        && record.state != State::Live
                        && !self.is_abandoned(&record) =>
                {
                    record
                }
                // What cannot be read is for the caller; and what is live is
                // nobody's work, whatever else it says.
                _ => return Ok(Some(locked)),
            };
            // Who is at work needs the lock to end it.
            drop(locked);
            let path = self.record_path(&attachment.id());
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StoreError::io("open", path)(error)),
            };
            let let_go = lock::wait_for(&file, lock::Mode::Shared, deadline)
                .map_err(StoreError::io("lock", path))?;
            // Even a record that says one thing and its lock another has an end.
            if !let_go || Instant::now() >= deadline {
                return Err(under_way(&busy));
            }
        }
    }
}

/// The error of who meets a record that somebody is at work on.
pub(super) fn under_way(record: &Record) -> StoreError {
    let attachment = record.attachment().to_string();
    match record.state {
        State::Adding { by } => StoreError::AddUnderWay {
            attachment,
            pid: by.pid,
        },
        State::Live | State::Deleting => StoreError::DelUnderWay { attachment },
    }
}

/// Whether the file at `path` is `record`, and nobody holds it.
fn is_let_go(path: &Path, record: &Record) -> io::Result<bool> {
    let file = open(path)?;
    // Shared, so that two who look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(false),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    let mut content = Vec::new();
    (&file).take(READ_MAX).read_to_end(&mut content)?;
    // Another record of the same name, or an old one whose owner has let go of it
    // because it wrote the next, says nothing of this one.
    let is_same = serde_json::from_slice::<Record>(&content).is_ok_and(|found| found == *record);
    Ok(is_same && lock::is_at(&file, path)?)
}

fn open(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
}
