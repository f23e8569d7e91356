//! The few file operations of the store.
//!
//! Every change of the store goes through [`Disk`], one call for each step after
//! which a crash could leave something. Tests replace it by a disk that stops at a
//! chosen step.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{ffi::OsString, fmt};

use tweed_core::limits;
use tweed_core::regular_file::{self, ReadError};

use super::lock::{self, Mode};
use super::open::options;

/// Longest file that the store reads, in bytes. A record has about 600.
pub const READ_MAX: u64 = limits::RECORD;

/// Size of the read buffer, in bytes: enough for a record in one read.
const READ_AT_ONCE: usize = 2048;

/// Far longer than a process that tests a lock has it.
const TEST_TIME: Duration = Duration::from_secs(1);

/// The type of a folder's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link, whatever its target is.
    Link,
    /// Anything else: a folder, a socket, a device.
    Other,
}

/// The store's view of a file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The content of a regular file.
    ///
    /// # Errors
    /// `NotFound`; `InvalidData` for more than [`READ_MAX`] bytes or anything
    /// that is not a regular file; the kernel's error.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for anything that is not a link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// The entries of a folder.
    ///
    /// # Errors
    /// The kernel's error.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>>;
    /// Creates a folder and those above it; an existing one is a success.
    ///
    /// # Errors
    /// The kernel's error.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Writes a file, or overwrites an existing one. A crash may leave any part.
    ///
    /// # Errors
    /// The kernel's error.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// As [`Disk::write`], and locks the file (flock(2), exclusive) before it has
    /// any content. The lock is held until the returned file is dropped, or the
    /// process ends; programs that the process runs do not inherit it.
    ///
    /// # Errors
    /// The kernel's error; `WouldBlock` when another process holds the lock.
    fn write_locked(&self, path: &Path, content: &[u8]) -> io::Result<File>;
    /// Has the content of a file or a folder on the disk before anything that is done
    /// later. Symbolic links are followed.
    ///
    /// # Errors
    /// The kernel's error.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Locks an existing file (flock(2), exclusive), then overwrites it in place; what
    /// it had beyond `content` becomes blanks, so that it keeps its length and needs
    /// no space. A crash may leave any part. The lock is held as with
    /// [`Disk::write_locked`].
    ///
    /// # Errors
    /// `NotFound`; `FileTooLarge` when `content` is longer than the file; the kernel's
    /// error; `WouldBlock` when another process holds the lock.
    fn overwrite_locked(&self, path: &Path, content: &[u8]) -> io::Result<File>;
    /// Renames a file, and replaces an existing one, atomically.
    ///
    /// # Errors
    /// The kernel's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a symbolic link, atomically.
    ///
    /// # Errors
    /// `AlreadyExists` when there is anything of that name.
    fn link(&self, target: &Path, path: &Path) -> io::Result<()>;
    /// Removes a file or link, atomically.
    ///
    /// # Errors
    /// `NotFound`; the kernel's error.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = regular_file::checked(options().read(true).open(path)?)?;
        let mut content = vec![0; READ_AT_ONCE];
        let length = file.read(&mut content)?;
        content.truncate(length);
        // A read of a regular file is short only at the end of the file.
        if length == READ_AT_ONCE {
            file.take(READ_MAX + 1).read_to_end(&mut content)?;
        }
        if content.len() as u64 > READ_MAX {
            return Err(ReadError::TooLong { limit: READ_MAX }.into());
        }
        Ok(content)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_file() => Kind::File,
                Ok(kind) if kind.is_symlink() => Kind::Link,
                Ok(_) => Kind::Other,
                // It was removed after the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push((entry.file_name(), kind));
        }
        Ok(entries)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        match builder.mode(0o755).create(path) {
            Ok(()) => Ok(()),
            // Nearly always it is a folder; a file of that name causes an error when
            // something below it is opened.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(_) => builder.recursive(true).create(path),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        create(path)?.write_all(content)
    }

    fn write_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        let mut file = create(path)?;
        file.try_lock()?;
        file.write_all(content)?;
        Ok(file)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        // The store's folder may be a symbolic link to another place.
        File::open(path)?.sync_all()
    }

    fn overwrite_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        let file = options().read(true).write(true).open(path)?;
        // A process that tests the lock has it for a moment.
        if !lock::wait_for(&file, Mode::Exclusive, Instant::now() + TEST_TIME)? {
            let problem = "another process holds its lock";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, problem));
        }
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if content.len() > length {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut padded = content.to_vec();
        padded.resize(length, b' ');
        file.write_all_at(&padded, 0)?;
        if let Some(folder) = path.parent() {
            // As a rename does: by this the agent sees that a record has changed.
            let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        }
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, target: &Path, path: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}
