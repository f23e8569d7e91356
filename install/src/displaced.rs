//! Configs of other networks that a runtime takes before tweed's: moved aside
//! when that is asked for, and put back when that is.
//!
//! A runtime reads only files with certain endings, so a config is out of its
//! sight with [`SUFFIX`] at the end of its name, and everything else of it, its
//! place and its content, is as it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tweed_core::paths::CONFLIST;
use tweed_diagnosis::cni_configs;

use crate::error::InstallError;
use crate::journal::{Deed, Journal};

/// What the name of a displaced config ends with.
pub const SUFFIX: &str = ".tweed-displaced";

/// Moves aside the configs that sort before tweed's.
pub fn displace(conf_dir: &Path, journal: &mut Journal<'_>) {
    let names = match names(conf_dir) {
        Ok(names) => names,
        Err(error) => return journal.failed(&error),
    };
    for name in names
        .iter()
        .filter(|name| cni_configs::wins(name, CONFLIST))
    {
        let from = conf_dir.join(name);
        let to = conf_dir.join(format!("{name}{SUFFIX}"));
        let object = format!("{} (now {})", from.display(), to.display());
        // One of that name is an older state of the same config.
        journal.act(Deed::DISPLACE, object, || rename(&from, &to));
    }
}

/// Puts all of them back.
pub fn restore(conf_dir: &Path, journal: &mut Journal<'_>) {
    let displaced = match list(conf_dir) {
        Ok(displaced) => displaced,
        Err(error) => return journal.failed(&error),
    };
    for (from, to) in displaced {
        if to.exists() {
            let why = format!("{} is there again; remove one of the two", to.display());
            journal.kept(from.display(), why);
            continue;
        }
        journal.act(Deed::RESTORE, to.display(), || rename(&from, &to));
    }
}

/// The displaced configs: where each is, and where it was.
///
/// # Errors
/// The folder cannot be read; one that is not there has none.
pub fn list(conf_dir: &Path) -> Result<Vec<(PathBuf, PathBuf)>, InstallError> {
    let pair = |name: String| {
        let before = name.strip_suffix(SUFFIX).filter(|name| !name.is_empty())?;
        Some((conf_dir.join(&name), conf_dir.join(before)))
    };
    Ok(names(conf_dir)?.into_iter().filter_map(pair).collect())
}

/// The names in a folder, as the runtime sorts them.
///
/// # Errors
/// As [`list`].
pub fn names(folder: &Path) -> Result<Vec<String>, InstallError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(InstallError::file("read", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(InstallError::file("read", folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn rename(from: &Path, to: &Path) -> Result<(), InstallError> {
    fs::rename(from, to).map_err(InstallError::file("rename", from))
}
