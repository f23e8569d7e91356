//! Installation of a file: complete, checked, and by rename.
//!
//! A running program is never written to (the kernel refuses that): the new one is
//! written to a draft beside it, read back, and renamed. The folder is locked
//! meanwhile: a draft that is found under the lock was left by a process that was
//! killed.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tweed_core::atomic_file::Draft;
use tweed_core::regular_file;

use crate::digest::Digest;
use crate::displaced::names;
use crate::error::{InstallError, Mismatch};

/// Prefix of the names of drafts.
const DRAFT_PREFIX: &str = ".tweed-install-";
const PERMISSIONS: u32 = 0o7777;

/// What a file is to hold.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// The content of this file.
    Of(&'a Path),
    /// This text.
    Text(&'a str),
}

impl Content<'_> {
    fn reader(&self) -> Result<Box<dyn Read + '_>, InstallError> {
        Ok(match self {
            Self::Of(path) => {
                let file = regular_file::open(path).map_err(io::Error::from);
                Box::new(file.map_err(InstallError::file("read", path))?)
            }
            Self::Text(text) => Box::new(text.as_bytes()),
        })
    }

    /// Its checksum.
    ///
    /// # Errors
    /// [`InstallError::File`].
    pub fn digest(&self) -> Result<Digest, InstallError> {
        match self {
            Self::Of(path) => digest_of(path),
            Self::Text(text) => Ok(Digest::of_text(text)),
        }
    }
}

/// A folder to install files in, and the lock on it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    handle: File,
}

impl Folder {
    /// Makes the folder if it does not exist, waits for others who install files
    /// in it, and removes drafts that were left there.
    ///
    /// # Errors
    /// [`InstallError::File`].
    pub fn open(path: &Path) -> Result<Self, InstallError> {
        fs::create_dir_all(path).map_err(InstallError::file("create the folder", path))?;
        let handle = File::open(path).map_err(InstallError::file("open", path))?;
        handle.lock().map_err(InstallError::file("lock", path))?;
        let folder = Self {
            path: path.to_owned(),
            handle,
        };
        for draft in drafts(path)? {
            fs::remove_file(&draft).map_err(InstallError::file("remove", &draft))?;
        }
        Ok(folder)
    }

    /// The path of the file `name`.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether `name` exists with this checksum and mode.
    ///
    /// # Errors
    /// [`InstallError::File`] if it exists and cannot be read.
    pub fn holds(&self, name: &str, digest: Digest, mode: u32) -> Result<bool, InstallError> {
        let path = self.join(name);
        let found = fs::symlink_metadata(&path);
        let found = InstallError::if_exists("look at", &path, found)?;
        let as_wanted = |found: Metadata| found.is_file() && found.mode() & PERMISSIONS == mode;
        Ok(found.is_some_and(as_wanted) && digest_of(&path)? == digest)
    }

    /// Installs `content` as `name`, if it has `digest`.
    ///
    /// # Errors
    /// [`InstallError::File`], [`InstallError::Checksum`]. The file is then as it
    /// was before.
    pub fn put(
        &self,
        name: &str,
        content: Content<'_>,
        digest: Digest,
        mode: u32,
    ) -> Result<(), InstallError> {
        let path = self.join(name);
        let failed = || InstallError::file("write", &path);
        let (draft, mut file) = Draft::create(&path, DRAFT_PREFIX, mode)?;
        io::copy(&mut content.reader()?, &mut file)
            .and_then(|_| file.sync_all())
            .map_err(failed())?;
        drop(file);
        let found = digest_of(draft.path())?;
        if found != digest {
            let mismatch = Box::new(Mismatch {
                found,
                expected: digest,
                list: match content {
                    Content::Of(source) => source.to_owned(),
                    Content::Text(_) => PathBuf::from("this program"),
                },
                cure: "the disk is faulty, or the source was replaced meanwhile; run it again",
            });
            return Err(InstallError::Checksum { path, mismatch });
        }
        draft.rename()?;
        // Otherwise the name may refer to the old file after a power failure.
        self.handle.sync_all().map_err(failed())
    }
}

/// The checksum of the file at `path`.
///
/// # Errors
/// [`InstallError::File`].
pub(crate) fn digest_of(path: &Path) -> Result<Digest, InstallError> {
    Digest::of_file(path).map_err(InstallError::file("read", path))
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

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_checksum_is_read_and_written_as_sha256sum_does() {
        let digest = Content::Text("abc").digest().unwrap();
        assert_eq!(digest.to_string(), ABC);
        assert_eq!(Digest::parse(ABC), Some(digest));
        assert_eq!(Digest::of(&b"abc"[..]).unwrap(), digest);
        for bad in ["", "ab", &"x".repeat(64), &"é".repeat(32)] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("a/b")).unwrap();
        let text = Content::Text("abc");
        let digest = text.digest().unwrap();
        assert!(!folder.holds("x", digest, 0o755).unwrap());
        folder.put("x", text, digest, 0o755).unwrap();
        assert!(folder.holds("x", digest, 0o755).unwrap());
        assert!(!folder.holds("x", digest, 0o644).unwrap());
        let before = fs::metadata(folder.join("x")).unwrap().ino();
        folder.put("x", text, digest, 0o755).unwrap();
        assert_ne!(fs::metadata(folder.join("x")).unwrap().ino(), before);
    }

    #[test]
    fn what_has_another_checksum_changes_nothing_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let old = Content::Text("old");
        folder.put("x", old, old.digest().unwrap(), 0o755).unwrap();
        let other = Content::Text("other").digest().unwrap();
        let error = folder.put("x", Content::Text("new"), other, 0o755);
        assert!(matches!(error, Err(InstallError::Checksum { .. })));
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "abc").unwrap();
        let folder = Folder::open(&dir.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.join("x")).unwrap();
        let text = Content::Text("new");
        let digest = text.digest().unwrap();
        assert!(
            !folder
                .holds("x", Content::Text("abc").digest().unwrap(), 0o644)
                .unwrap()
        );
        folder.put("x", text, digest, 0o755).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "abc");
        assert!(folder.holds("x", digest, 0o755).unwrap());
    }

    #[test]
    fn what_a_killed_one_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".tweed-install-Xy12"), "half").unwrap();
        fs::write(dir.path().join("bridge"), "").unwrap();
        Folder::open(dir.path()).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "bridge");
    }
}
