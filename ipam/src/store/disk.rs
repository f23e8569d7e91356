//! The few system calls that the store makes, as one edge.
//!
//! Everything that the store leaves on disk goes through [`Disk`], one call for
//! each step after which a crash could leave something. Tests put a disk in its
//! place that stops at a chosen step.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Longest file that the store reads, in bytes. A record has about 600.
pub const READ_MAX: u64 = 64 * 1024;

/// Room for a record, and what else the store keeps, in one read.
const READ_AT_ONCE: usize = 2048;

/// What a folder's entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link, wherever it leads.
    Link,
    /// Anything else: a folder, a socket, a device.
    Other,
}

/// The store's view of a file system.
pub trait Disk: Send + Sync {
    /// The content of a regular file.
    ///
    /// # Errors
    /// `NotFound`; `InvalidData` for more than [`READ_MAX`] bytes or anything
    /// that is not a regular file; what the kernel says.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` where something else than a link is there.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// The entries of a folder.
    ///
    /// # Errors
    /// What the kernel says.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>>;
    /// Makes a folder and those above it; one that exists is a success.
    ///
    /// # Errors
    /// What the kernel says.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Writes a file, in place of one that exists. A crash may leave any part.
    ///
    /// # Errors
    /// What the kernel says.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// As [`Disk::write`], and locks the file (flock(2), exclusive) before there
    /// is anything in it. The lock is held until what is returned is dropped, or
    /// the process ends; programs that the process runs do not inherit it.
    ///
    /// # Errors
    /// What the kernel says; `WouldBlock` when somebody else has it locked.
    fn write_locked(&self, path: &Path, content: &[u8]) -> io::Result<File>;
    /// Gives a file another name, in place of one that exists, atomically.
    ///
    /// # Errors
    /// What the kernel says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a symbolic link, atomically.
    ///
    /// # Errors
    /// `AlreadyExists` when anything has that name.
    fn link(&self, target: &Path, path: &Path) -> io::Result<()>;
    /// Removes a file or link, atomically.
    ///
    /// # Errors
    /// `NotFound`; what the kernel says.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The kernel's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // NONBLOCK, or a FIFO of that name would hold the caller forever.
        let mut file = fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)?;
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if !file.metadata()?.is_file() {
            return Err(invalid("it is not a regular file"));
        }
        let mut content = vec![0; READ_AT_ONCE];
        let length = file.read(&mut content)?;
        content.truncate(length);
        // A regular file gives less than was asked for only at its end.
        if length == READ_AT_ONCE {
            file.take(READ_MAX + 1).read_to_end(&mut content)?;
        }
        if content.len() as u64 > READ_MAX {
            return Err(invalid("it is larger than 64 KiB"));
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
                // Gone between the listing and the look: never there for us.
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
            // It is what is there nearly always; a file in its place is found by
            // whoever looks for something below it.
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
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
}
