//! Configs of other networks that a runtime would use instead of tweed's:
//! `--displace-cni` renames them, `--restore-cni` gives them their names back.
//!
//! A runtime reads only files with certain endings, so it does not see a config
//! whose name ends with [`SUFFIX`]. Folder and content stay as they are.

use std::fs;
use std::path::{Path, PathBuf};

use tweed_core::paths::CONFLIST;
use tweed_core::{limits, regular_file};
use tweed_diagnosis::cni_configs;

use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// Suffix of the name of a displaced config.
pub const SUFFIX: &str = ".tweed-displaced";

/// Renames the configs that sort before tweed's, but not one of Multus that may call tweed's:
/// without it pods would lose their other networks.
pub fn displace(conf_dir: &Path, journal: &mut Journal<'_>) {
    let mut names = journal.checked(names(conf_dir)).unwrap_or_default();
    names.retain(|name| cni_configs::wins(name, CONFLIST));
    for name in names {
        let from = conf_dir.join(&name);
        let content = regular_file::read(&from, limits::CNI_CONFIG);
        if content.is_ok_and(|content| cni_configs::may_call(&content, CONFLIST)) {
            let why = format_args!("it calls another config for each pod, which may be {CONFLIST}");
            journal.kept(from.display(), why);
            continue;
        }
        let to = conf_dir.join(format!("{name}{SUFFIX}"));
        let object = format!("{} (now {})", from.display(), to.display());
        // An existing file of that name is an older version of the same config.
        journal.act(Action::DISPLACE, object, || rename(&from, &to));
    }
}

/// Gives all displaced configs their names back.
pub fn restore(conf_dir: &Path, journal: &mut Journal<'_>) {
    let displaced = journal.checked(list(conf_dir));
    for (from, to) in displaced.unwrap_or_default() {
        if to.exists() {
            let why = format!("{} exists again; remove one of the two", to.display());
            journal.kept(from.display(), why);
            continue;
        }
        journal.act(Action::RESTORE, to.display(), || rename(&from, &to));
    }
}

/// The displaced configs: the present and the former path of each.
///
/// # Errors
/// The folder cannot be read; a folder that does not exist has none.
pub fn list(conf_dir: &Path) -> Result<Vec<(PathBuf, PathBuf)>, InstallError> {
    let pair = |name: String| {
        let before = name.strip_suffix(SUFFIX).filter(|name| !name.is_empty())?;
        Some((conf_dir.join(&name), conf_dir.join(before)))
    };
    Ok(names(conf_dir)?.into_iter().filter_map(pair).collect())
}

/// The names in a folder, in the order in which the runtime reads them.
///
/// # Errors
/// As [`list`].
pub fn names(folder: &Path) -> Result<Vec<String>, InstallError> {
    let entries = InstallError::if_exists("read", folder, fs::read_dir(folder))?;
    let mut names = Vec::new();
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(InstallError::file("read", folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn rename(from: &Path, to: &Path) -> Result<(), InstallError> {
    fs::rename(from, to).map_err(InstallError::file("rename", from))
}
