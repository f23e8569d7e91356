//! Disks that fail: one whose process is killed before a chosen step, and ones that
//! are full.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tweed_ipam::store::disk::{Disk, Kind, LocalDisk};

/// Makes the chosen number of changes and then fails everything, as if the process
/// had been killed: the change at which it dies is not made, except for a write, of
/// which a half is made.
#[derive(Debug)]
pub struct MortalDisk {
    steps_left: AtomicUsize,
    /// Whether it has neither space nor an inode left.
    is_full: bool,
    /// Files whose content is not on the disk.
    unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Files whose name is not on the disk.
    unnamed: Mutex<BTreeSet<PathBuf>>,
}

impl MortalDisk {
    pub fn dying_at(step: usize) -> Self {
        Self {
            steps_left: AtomicUsize::new(step + 1),
            is_full: false,
            unsynced: Mutex::default(),
            unnamed: Mutex::default(),
        }
    }

    /// As [`MortalDisk::dying_at`], and nothing can be created or made longer.
    pub fn full_and_dying_at(step: usize) -> Self {
        Self {
            is_full: true,
            ..Self::dying_at(step)
        }
    }

    /// Leaves every file empty that was not synced, as a power failure does. Of the
    /// others those are gone whose folder was not synced.
    pub fn lose_power(&self) {
        let unsynced = self.unsynced.lock().unwrap();
        for path in unsynced.iter() {
            File::create(path).unwrap();
        }
        for path in self.unnamed.lock().unwrap().difference(&unsynced) {
            fs::remove_file(path).unwrap();
        }
    }

    /// Whether the chosen step was reached.
    pub fn is_dead(&self) -> bool {
        self.steps_left.load(Ordering::SeqCst) == 0
    }

    fn alive(&self) -> io::Result<()> {
        if self.is_dead() {
            Err(io::Error::other("killed"))
        } else {
            Ok(())
        }
    }

    fn space(&self) -> io::Result<()> {
        if self.is_full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn step(&self) -> io::Result<()> {
        self.alive()?;
        self.steps_left.fetch_sub(1, Ordering::SeqCst);
        self.alive()
    }
}

impl Disk for MortalDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.alive()?;
        LocalDisk.read(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.alive()?;
        LocalDisk.read_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        self.alive()?;
        LocalDisk.list(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        LocalDisk.make_folder(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.space()?;
        if let Err(killed) = self.step() {
            LocalDisk.write(path, &content[..content.len() / 2])?;
            return Err(killed);
        }
        self.unsynced.lock().unwrap().insert(path.to_owned());
        LocalDisk.write(path, content)
    }

    fn write_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        self.space()?;
        if let Err(killed) = self.step() {
            LocalDisk.write_locked(path, &content[..content.len() / 2])?;
            return Err(killed);
        }
        self.unsynced.lock().unwrap().insert(path.to_owned());
        LocalDisk.write_locked(path, content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        LocalDisk.sync(path)?;
        self.unsynced.lock().unwrap().remove(path);
        let mut unnamed = self.unnamed.lock().unwrap();
        unnamed.retain(|file| file.parent() != Some(path));
        Ok(())
    }

    fn overwrite_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        self.step()?;
        LocalDisk.overwrite_locked(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let mut unsynced = self.unsynced.lock().unwrap();
        unsynced.remove(to);
        if unsynced.remove(from) {
            unsynced.insert(to.to_owned());
        }
        self.unnamed.lock().unwrap().insert(to.to_owned());
        LocalDisk.rename(from, to)
    }

    fn link(&self, target: &Path, path: &Path) -> io::Result<()> {
        self.space()?;
        self.step()?;
        LocalDisk.link(target, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.unnamed.lock().unwrap().remove(path);
        LocalDisk.remove(path)
    }
}

/// Has space for files, but not for another link.
#[derive(Debug)]
pub struct FullDisk;

impl Disk for FullDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        LocalDisk.read(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        LocalDisk.read_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        LocalDisk.list(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        LocalDisk.make_folder(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        LocalDisk.write(path, content)
    }

    fn write_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        LocalDisk.write_locked(path, content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalDisk.sync(path)
    }

    fn overwrite_locked(&self, path: &Path, content: &[u8]) -> io::Result<File> {
        LocalDisk.overwrite_locked(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename(from, to)
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }
}
