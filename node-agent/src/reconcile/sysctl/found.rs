//! The file with the values that sysctls had before tweed, for the uninstallation.

use std::io;
use std::path::{Path, PathBuf};

use tweed_core::atomic_file::{self, ReplaceError};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::sysctl::{FOUND, Found};
use tweed_core::uptime::is_older_than_boot;
use tweed_core::{limits, regular_file};

/// What is wrong with the file. Nothing but the uninstallation is worse for it.
#[derive(Debug, thiserror::Error)]
pub(super) enum FoundError {
    #[error("the values from before tweed cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("it is damaged, and left alone: {0}; values from before tweed are not kept")]
    Damaged(#[source] serde_json::Error),
    #[error("the values from before tweed cannot be kept: {0}")]
    Write(#[source] ReplaceError),
}

/// The file, and the boot that its values have to be of.
#[derive(Debug)]
pub(super) struct FoundFile {
    path: PathBuf,
    boot_id: String,
}

impl FoundFile {
    /// The file in this folder.
    pub(super) fn new(run_dir: &Path, boot_id: &str) -> Self {
        Self {
            path: run_dir.join(FOUND),
            boot_id: boot_id.to_owned(),
        }
    }

    /// The values of this boot; none where there is no file, or one of an earlier boot.
    pub(super) fn read(&self) -> Result<Found, FoundError> {
        let none = || Found::none_in(&self.boot_id);
        let content = match regular_file::read(&self.path, limits::STATE) {
            Ok(content) => content,
            Err(error) if error.is_missing() => return Ok(none()),
            Err(error) => return Err(FoundError::Read(error.into())),
        };
        match Found::parse(&content) {
            Ok(found) if found.is_of(&self.boot_id) => Ok(found),
            Ok(_) => Ok(none()),
            // It is written without waiting for the disk: a power failure may damage it.
            Err(_) if is_older_than_boot(&self.path) => Ok(none()),
            Err(error) => Err(FoundError::Damaged(error)),
        }
    }

    /// Replaces the values, which are of this boot from now on.
    pub(super) fn write(&self, found: &mut Found) -> Result<(), ReplaceError> {
        found.boot_id = Some(self.boot_id.clone());
        let content = found.content();
        atomic_file::replace(&self.path, content.as_bytes(), atomic_file::PRIVATE)
    }

    pub(super) fn problem(&self, error: &FoundError) -> Problem {
        let path = self.path.display().to_string();
        Problem::new(ProblemKind::SysctlsFile, path, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use std::fs;

    use super::*;

    #[test]
    fn a_damaged_file_counts_as_empty_only_if_it_is_older_than_the_boot() {
        let folder = tempfile::tempdir().unwrap();
        let file = FoundFile::new(folder.path(), "b");
        assert_eq!(file.read().unwrap(), Found::none_in("b"));
        fs::write(&file.path, "").unwrap();
        let error = file.read().unwrap_err();
        assert!(matches!(error, FoundError::Damaged(_)), "{error}");
        let written = fs::File::options().append(true).open(&file.path).unwrap();
        written.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(file.read().unwrap(), Found::none_in("b"));
    }
}
