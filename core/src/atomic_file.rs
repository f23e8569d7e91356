//! Atomic replacement of a file: a reader sees the old content or the new one,
//! never a part.
//!
//! The new content is written to a draft, a hidden file in the same folder, which
//! then takes the name. [`replace`] and [`update`] do all of it; who checks the
//! content before it takes its name uses [`Draft`]. A process that is killed
//! leaves its draft behind; the next owner of the folder finds it by the prefix
//! ([`remove_drafts`]). A draft that is being written is locked, which holds between
//! containers too: in another PID namespace a process is not seen, or has another number.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::process;

use crate::regular_file;

/// How the name of a draft begins, unless its writer chooses another prefix.
pub const DRAFT_PREFIX: &str = ".tweed-";
/// How the name of a draft ends. Container runtimes read every `*.conflist`,
/// `*.conf` and `*.json` of their config folder, hidden or not: this suffix keeps
/// them from reading a draft.
pub const DRAFT_SUFFIX: &str = ".new";

/// Who may read a file, and whether it must survive a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Permission bits, set exactly: the umask does not apply.
    pub mode: u32,
    /// Whether the content is on the disk before the file takes its name. Without
    /// it, a rename may survive a power failure that the content does not.
    pub sync: bool,
}

/// For a file that other programs read, in a folder that outlives a reboot.
pub const SHARED: Options = Options {
    mode: 0o644,
    sync: true,
};
/// For tweed's own state in the run folder, which is void after a reboot.
pub const PRIVATE: Options = Options {
    mode: 0o600,
    sync: false,
};

/// A file could not be replaced. The file of that name is as it was before.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct ReplaceError {
    /// What failed: `write`, `replace`.
    pub operation: &'static str,
    /// The file that was to be replaced.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl ReplaceError {
    /// For `map_err` on an operation on the file at `path`.
    pub fn on(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}

impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// What [`update`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// The file had this content already and was left alone.
    Unchanged,
    /// The file was replaced.
    Written,
}

/// Replaces the file at `path`, unless it has this content already.
///
/// # Errors
/// [`ReplaceError`].
pub fn update(path: &Path, content: &[u8], options: Options) -> Result<Update, ReplaceError> {
    // A file that is longer has another content.
    let old = regular_file::read(path, content.len() as u64);
    if old.is_ok_and(|old| old == content) {
        return Ok(Update::Unchanged);
    }
    replace(path, content, options)?;
    Ok(Update::Written)
}

/// Replaces the file at `path`, or creates it, and its folder too.
///
/// # Errors
/// [`ReplaceError`].
pub fn replace(path: &Path, content: &[u8], options: Options) -> Result<(), ReplaceError> {
    replace_by(path, options, |file| file.write_all(content))
}

/// As [`replace`], with the content that `write` writes.
///
/// # Errors
/// [`ReplaceError`].
pub fn replace_by<T>(
    path: &Path,
    options: Options,
    write: impl FnOnce(&mut File) -> io::Result<T>,
) -> Result<T, ReplaceError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    make_folder(folder).map_err(ReplaceError::on("create the folder of", path))?;
    let (draft, mut file) = Draft::create(path, DRAFT_PREFIX, options.mode)?;
    let written = write(&mut file)
        .and_then(|written| {
            if options.sync {
                file.sync_all()?;
            }
            Ok(written)
        })
        .map_err(ReplaceError::on("write", path))?;
    // The file stays open, and thereby locked, until it has its name.
    draft.rename()?;
    Ok(written)
}

/// Removes from `folder` the drafts of killed processes, and returns their paths. A
/// draft that is being written is locked, and stays. So does each on a file system
/// without locks.
///
/// # Errors
/// The folder exists and cannot be read, or a draft cannot be removed.
pub fn remove_drafts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(is_draft) || !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        match remove_unlocked(&path) {
            Ok(true) => removed.push(path),
            Ok(false) => {}
            // Meanwhile it took its name, or its writer removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// Removes the file if nobody has locked it. Returns whether it did.
fn remove_unlocked(path: &Path) -> io::Result<bool> {
    let file = regular_file::open(path)?;
    if file.try_lock().is_err() {
        return Ok(false);
    }
    // Its writer may have renamed it before the lock, and have a new draft of this name.
    // Who has the lock is the only one who may rename the file, or remove it.
    let (locked, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    let is_same = (locked.dev(), locked.ino()) == (named.dev(), named.ino());
    if is_same {
        fs::remove_file(path)?;
    }
    Ok(is_same)
}

/// Whether this is the name of a draft with the usual prefix.
fn is_draft(name: &str) -> bool {
    let numbers = name
        .strip_prefix(DRAFT_PREFIX)
        .and_then(|rest| rest.strip_suffix(DRAFT_SUFFIX)?.split_once('-'));
    let is_number = |word: &str| word.parse::<u32>().is_ok();
    numbers.is_some_and(|(writer, number)| is_number(writer) && is_number(number))
}

/// Makes a folder and those above it; one that exists is a success. Others may read
/// it, but only its owner may write to it, however open the caller's umask is: a
/// runtime may start a plugin with any umask.
///
/// # Errors
/// The kernel's.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
}

/// The new content of a file, under a name of its own beside it. It is removed
/// when it is dropped before [`Draft::rename`].
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    target: PathBuf,
    is_renamed: bool,
}

impl Draft {
    /// A new empty file with exactly these permission bits in the folder of
    /// `target`, open for writing and locked as long as it is open. A program must be
    /// closed before it is renamed: the kernel does not run a file that is open for
    /// writing.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn create(target: &Path, prefix: &str, mode: u32) -> Result<(Self, File), ReplaceError> {
        let failed = || ReplaceError::on("create a draft of", target);
        let id = process::id();
        let mut number = 0_u32;
        loop {
            // Only a process of another PID namespace, or a killed one, has used
            // this name: the next number is free.
            let path = target.with_file_name(format!("{prefix}{id}-{number}{DRAFT_SUFFIX}"));
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode & 0o600)
                .open(&path);
            let file = match opened {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                    continue;
                }
                opened => opened.map_err(failed())?,
            };
            // Who removes drafts may find it before it is locked.
            if !lock(&file).map_err(failed())? {
                number = number.wrapping_add(1);
                continue;
            }
            let draft = Self {
                path,
                target: target.to_owned(),
                is_renamed: false,
            };
            file.set_permissions(Permissions::from_mode(mode))
                .map_err(failed())?;
            return Ok((draft, file));
        }
    }

    /// Where it is until it is renamed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the place of the target.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn rename(mut self) -> Result<(), ReplaceError> {
        fs::rename(&self.path, &self.target).map_err(ReplaceError::on("replace", &self.target))?;
        self.is_renamed = true;
        Ok(())
    }
}

/// Locks a new draft. Returns whether it is still there, and will be.
fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        // On a file system without locks, nobody removes it.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file.metadata()?.nlink() > 0),
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_renamed {
            // Whoever clears up the folder finds it by its prefix.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_is_written_once_and_left_alone_while_its_content_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        assert_eq!(update(&path, b"one", SHARED).unwrap(), Update::Written);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(update(&path, b"one", SHARED).unwrap(), Update::Unchanged);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(update(&path, b"two", SHARED).unwrap(), Update::Written);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
        replace(&path, b"two", PRIVATE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(names(path.parent().unwrap()), ["file"]);
    }

    #[test]
    fn an_error_names_operation_and_file_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("taken"), "").unwrap();
        let error = replace(&dir.path().join("taken/file"), b"x", SHARED).unwrap_err();
        assert!(error.to_string().contains("taken/file"), "{error}");

        let folder = dir.path().join("folder");
        fs::create_dir_all(folder.join("file/full")).unwrap();
        let error = replace(&folder.join("file"), b"x", SHARED).unwrap_err();
        assert!(error.to_string().starts_with("cannot replace "), "{error}");
        assert_eq!(names(&folder), ["file"]);
    }

    #[test]
    fn a_draft_is_hidden_from_runtimes_and_is_not_taken_twice() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("10-tweed.conflist");
        let (first, _file) = Draft::create(&target, ".tweed-install-", 0o755).unwrap();
        let (second, _file) = Draft::create(&target, ".tweed-install-", 0o755).unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(first.path().metadata().unwrap().mode() & 0o7777, 0o755);
        for name in names(dir.path()) {
            assert!(name.starts_with(".tweed-install-") && name.ends_with(".new"));
        }
        drop(first);
        second.rename().unwrap();
        assert_eq!(names(dir.path()), ["10-tweed.conflist"]);
    }

    #[test]
    fn drafts_that_nobody_writes_go_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("agent.json");
        let (written, file) = Draft::create(&target, DRAFT_PREFIX, 0o600).unwrap();
        // Process 1 runs, but it may be one of another PID namespace that wrote this.
        let drafts = [".tweed-1-0.new", ".tweed-1073741823-7.new"];
        let others = [".tweed-install-1-0.new", ".tweed-x-1.new", "agent.json"];
        for name in drafts.iter().chain(&others) {
            fs::write(dir.path().join(name), "{").unwrap();
        }
        fs::create_dir(dir.path().join(".tweed-2-0.new")).unwrap();
        assert_eq!(remove_drafts(dir.path()).unwrap().len(), 2);
        let left = names(dir.path());
        assert_eq!(left.len(), 5, "{left:?}");
        assert!(!drafts.iter().any(|draft| left.iter().any(|n| n == draft)));
        assert!(written.path().exists());
        // Not dropped: a process that another test has just forked has a copy.
        file.unlock().unwrap();
        assert_eq!(remove_drafts(dir.path()).unwrap(), [written.path()]);
        assert!(remove_drafts(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn a_file_is_replaced_while_drafts_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::thread::scope(|scope| {
            let writer = scope
                .spawn(|| (0..300).try_for_each(|round| replace(&path, &[round as u8], PRIVATE)));
            while !writer.is_finished() {
                remove_drafts(dir.path()).unwrap();
            }
            writer.join().unwrap().unwrap();
        });
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "old").unwrap();
        let path = dir.path().join("file");
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        replace(&path, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"old");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
