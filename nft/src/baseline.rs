//! What the whole table looks like: the version of the skeleton and the digest
//! of what the kernel made of it, kept in `<run dir>/nft-skeleton`.
//!
//! With it an agent that starts again knows an untouched table from one that
//! was changed meanwhile, without writing anything. A missing or unreadable
//! file costs one replacement of the table.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Version and digest of a table that nobody has touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Baseline {
    /// The skeleton's version.
    pub(super) version: String,
    /// The observation's digest.
    pub(super) digest: String,
}

fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("nft-skeleton")
}

impl Baseline {
    /// What the last agent left; none if there is nothing that can be used.
    pub(super) fn read(run_dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(path(run_dir)).ok()?;
        let (version, digest) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Self {
            version: version.to_owned(),
            digest: digest.to_owned(),
        })
    }

    /// Writes the file, by rename.
    pub(super) fn write(&self, run_dir: &Path) -> Result<(), Error> {
        let path = path(run_dir);
        let replace = || {
            let mut file = tempfile::NamedTempFile::new_in(run_dir)?;
            writeln!(file, "{} {}", self.version, self.digest)?;
            file.persist(&path)?;
            Ok(())
        };
        replace().map_err(|source| Error::Baseline {
            path: path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_comes_back_and_damage_is_as_if_there_were_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Baseline::read(folder.path()), None);
        let baseline = Baseline {
            version: "1-abc".to_owned(),
            digest: "0f".to_owned(),
        };
        baseline.write(folder.path()).unwrap();
        assert_eq!(Baseline::read(folder.path()), Some(baseline));
        fs::write(path(folder.path()), "1-abc 0").unwrap();
        assert_eq!(Baseline::read(folder.path()), None);
    }
}
