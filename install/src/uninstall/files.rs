//! The files: config, plugins, state, and what a host install has put there.

use std::fs;
use std::io;
use std::path::Path;

use tweed_core::leaving;
use tweed_core::paths::AGENT_LOCK;
use tweed_core::sysctl::FOUND;

use crate::displaced::names;
use crate::error::InstallError;
use crate::host;
use crate::journal::{Deed, Journal};
use crate::places::Places;
use crate::plugins::PLUGINS;
use crate::put::drafts;

/// What agent and plugin keep in the run folder, but for [`FOUND`] and [`AGENT_LOCK`].
const STATE: [&str; 6] = [
    "ready",
    "ipam",
    "agent.json",
    "agent.sock",
    "nft-skeleton",
    leaving::LOCK_FILE,
];
/// How the names of files begin that the agent was killed over: in the run
/// folder, those of `tempfile`; where others look, its own.
const STATE_DRAFTS: [&str; 2] = [".tmp", ".tweed-"];

/// Removes the network's config, and drafts of it.
pub(super) fn remove_conflist(conf_dir: &Path, conflist: &str, journal: &mut Journal<'_>) {
    let is_ours =
        |name: &str| name == conflist || (name.starts_with(".tweed-") && name.ends_with(".new"));
    match names(conf_dir) {
        Ok(names) => {
            for name in names.iter().filter(|name| is_ours(name)) {
                remove(&conf_dir.join(name), journal);
            }
        }
        Err(error) => journal.failed(&error),
    }
}

/// Removes the plugins. Their names are tweed's, in any version.
pub(super) fn remove_plugins(bin_dir: &Path, journal: &mut Journal<'_>) {
    for name in PLUGINS {
        remove(&bin_dir.join(name), journal);
    }
    match drafts(bin_dir) {
        Ok(drafts) => drafts.iter().for_each(|draft| remove(draft, journal)),
        Err(error) => journal.failed(&error),
    }
}

/// Removes what `tweed-install host` has put there. What a person has written
/// stays.
pub(super) fn remove_host_install(places: &Places, journal: &mut Journal<'_>) {
    let installed = match host::installed(places) {
        Ok(installed) => installed,
        Err(error) => return journal.failed(&error),
    };
    for file in installed {
        if file.edited {
            journal.kept(file.path.display(), "it was edited; remove it by hand");
        } else {
            remove(&file.path, journal);
        }
    }
    remove_empty(&host::config_dir(places), journal);
}

/// Removes the state. The lock is the last: until then no agent starts. The
/// values of sysctls stay while one of them was not put back.
pub(super) fn remove_run_dir(run_dir: &Path, with_sysctls: bool, journal: &mut Journal<'_>) {
    let names = match names(run_dir) {
        Ok(names) => names,
        Err(error) => return journal.failed(&error),
    };
    let is_ours = |name: &str| {
        STATE.contains(&name) || STATE_DRAFTS.iter().any(|draft| name.starts_with(draft))
    };
    for name in names.iter().filter(|name| is_ours(name)) {
        remove(&run_dir.join(name), journal);
    }
    let there = |name: &str| names.iter().any(|found| found == name);
    if there(FOUND) && (with_sysctls || journal.is_rehearsal()) {
        remove(&run_dir.join(FOUND), journal);
    } else if there(FOUND) {
        journal.kept(
            run_dir.join(FOUND).display(),
            "a sysctl is still to be put back",
        );
    }
    if there(AGENT_LOCK) {
        remove(&run_dir.join(AGENT_LOCK), journal);
    }
    remove_empty(run_dir, journal);
}

/// Removes a file, a link or a folder with all that is in it; nothing there is
/// nothing to do.
fn remove(path: &Path, journal: &mut Journal<'_>) {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return;
    };
    journal.act(Deed::REMOVE, path.display(), || {
        let removed = if metadata.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(InstallError::file("remove", path)),
        }
    });
}

/// Removes a folder if nothing is in it any more.
fn remove_empty(folder: &Path, journal: &mut Journal<'_>) {
    if !folder.is_dir() {
        return;
    }
    if journal.is_rehearsal() {
        journal.act(
            Deed::REMOVE,
            format!("{}, if empty", folder.display()),
            || Ok(()),
        );
        return;
    }
    let Err(error) = fs::remove_dir(folder) else {
        return journal.line(format_args!("removed {}", folder.display()));
    };
    let left = names(folder).unwrap_or_default();
    match error.kind() {
        // What is mounted in a pod cannot go, and its root may be read-only.
        io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem if left.is_empty() => {
            journal.kept(
                folder.display(),
                "it is empty, and mounted here; it goes with the next boot, or by rmdir on the machine",
            );
        }
        _ if !left.is_empty() => journal.kept(
            folder.display(),
            format_args!("it still holds {}", left.join(", ")),
        ),
        _ => journal.failed(&InstallError::file("remove", folder)(error)),
    }
}
