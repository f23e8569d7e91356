//! Installation of files: complete, checked, and by rename.
//!
//! A running program is never written to (the kernel refuses that): the new one is
//! written to a draft beside it, read back, and renamed. The folder is locked
//! meanwhile: a draft that is found under the lock was left by a process that was
//! killed.

use std::fs::{self, File, Metadata};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tweed_core::atomic_file::Draft;
use tweed_core::{regular_file, text::hex};

use crate::displaced::names;
use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// Mode of programs.
pub const PROGRAM: u32 = 0o755;
/// Mode of files that everybody may read.
pub const READABLE: u32 = 0o644;
/// Prefix of the names of drafts.
const DRAFT_PREFIX: &str = ".tweed-install-";
const PERMISSIONS: u32 = 0o7777;

/// Installs files, by their names and contents, in a folder, which is made if it does not
/// exist; those that are there already are left alone. `elsewhere` is the cure if it is on a
/// read-only file system.
pub fn install(
    folder: &Path,
    files: &[(&str, impl AsRef<[u8]>)],
    mode: u32,
    elsewhere: &'static str,
    journal: &mut Journal<'_>,
) {
    let lock = open(folder).map_err(|error| error.or_elsewhere(elsewhere));
    let Some(lock) = journal.checked(lock) else {
        return;
    };
    for (name, content) in files {
        let (path, content) = (folder.join(name), content.as_ref());
        if holds(&path, content, mode) {
            journal.kept(path.display(), "it is this version already");
            continue;
        }
        let object = format!("{} (SHA-256 {})", path.display(), sha256(content));
        journal.act(Action::INSTALL, object, || {
            let put = put(&lock, &path, content, mode);
            put.map_err(|error| error.or_elsewhere(elsewhere))
        });
    }
}

/// Makes the folder if it does not exist, waits for others who install files in it, and
/// removes drafts that were left there. Others wait as long as it is open.
fn open(path: &Path) -> Result<File, InstallError> {
    fs::create_dir_all(path).map_err(InstallError::file("create the folder", path))?;
    let folder = File::open(path).map_err(InstallError::file("open", path))?;
    folder.lock().map_err(InstallError::file("lock", path))?;
    for draft in drafts(path)? {
        fs::remove_file(&draft).map_err(InstallError::file("remove", &draft))?;
    }
    Ok(folder)
}

/// Whether the file has this content and mode. One that cannot be read is replaced, too.
fn holds(path: &Path, content: &[u8], mode: u32) -> bool {
    let as_wanted = |found: Metadata| found.is_file() && found.mode() & PERMISSIONS == mode;
    let found = || regular_file::read(path, content.len() as u64);
    fs::symlink_metadata(path).is_ok_and(as_wanted) && found().is_ok_and(|found| found == content)
}

/// Gives the file in `folder` this content. After an error it is as it was before.
fn put(folder: &File, path: &Path, content: &[u8], mode: u32) -> Result<(), InstallError> {
    let failed = || InstallError::file("write", path);
    let (draft, mut file) = Draft::create(path, DRAFT_PREFIX, mode)?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(failed())?;
    drop(file);
    if fs::read(draft.path()).map_err(failed())? != content {
        return Err(InstallError::Other(format!(
            "cannot write {}: what is read back is not what was written: the disk is faulty",
            path.display()
        )));
    }
    draft.rename()?;
    // Otherwise the name may refer to the old file after a power failure.
    folder.sync_all().map_err(failed())
}

/// As `sha256sum` writes it.
pub(crate) fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Drafts left in `folder`; none if it does not exist.
///
/// # Errors
/// [`InstallError::File`].
pub fn drafts(folder: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut names = names(folder)?;
    names.retain(|name| name.starts_with(DRAFT_PREFIX));
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(folder: &Path, content: &str, mode: u32) -> String {
        let mut out = Vec::new();
        let mut journal = Journal::new(&mut out);
        install(folder, &[("x", content)], mode, "elsewhere", &mut journal);
        journal.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let path = folder.join("x");
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let line = format!("installed {} (SHA-256 {digest})\n", path.display());
        assert_eq!(installed(&folder, "abc", PROGRAM), line);
        let before = fs::metadata(&path).unwrap().ino();
        let said = installed(&folder, "abc", PROGRAM);
        assert!(said.ends_with("it is this version already\n"), "{said}");
        assert_eq!(fs::metadata(&path).unwrap().ino(), before);
        assert_eq!(installed(&folder, "abc", READABLE), line);
        let after = fs::metadata(&path).unwrap();
        assert_ne!(after.ino(), before);
        assert_eq!(after.mode() & PERMISSIONS, READABLE);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "abc").unwrap();
        let path = dir.path().join("x");
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(!holds(&path, b"abc", READABLE));
        installed(dir.path(), "new", PROGRAM);
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "abc");
        assert!(holds(&path, b"new", PROGRAM));
    }
}
