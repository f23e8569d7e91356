//! Removal of files: config, plugins, state, and what a host install has written.

use std::{fs, io, path::Path};

use tweed_core::agent_socket::path::AGENT_SOCKET;
use tweed_core::agent_state::POLICY_FILE;
use tweed_core::atomic_file::{DRAFT_PREFIX, DRAFT_SUFFIX};
use tweed_core::paths::{AGENT_LOCK, CONFLIST, NODES_KEPT};
use tweed_core::{leaving, sysctl::FOUND};

use super::sysctls::Values;
use crate::journal::{Action, Journal};
use crate::{
    displaced::names,
    error::InstallError,
    host::{self, Installed},
    places::{ENVIRONMENT, Places},
    plugins::PLUGINS,
    put::drafts,
};

/// The files of agent and plugin in the run folder, except [`FOUND`] and [`AGENT_LOCK`].
const STATE: [&str; 8] = [
    "ready",
    "ipam",
    "agent.json",
    AGENT_SOCKET,
    POLICY_FILE,
    NODES_KEPT,
    BASELINE,
    leaving::LOCK_FILE,
];

/// How the names begin of the files with which the agent compares its tables.
const BASELINE: &str = "nft-skeleton";

/// Whether there is any file of tweed in the folders.
pub(super) fn any(places: &Places) -> bool {
    let has = |folder: &Path, names: &[&str]| names.iter().any(|name| folder.join(name).exists());
    has(&places.cni_conf_dir, &[CONFLIST])
        || has(&places.cni_bin_dir, &PLUGINS)
        || has(&places.run_dir, &STATE)
}

/// Removes the network's config and its drafts.
pub(super) fn remove_conflist(conf_dir: &Path, journal: &mut Journal<'_>) {
    let is_ours = |name: &str| {
        name == CONFLIST || (name.starts_with(DRAFT_PREFIX) && name.ends_with(DRAFT_SUFFIX))
    };
    let names = journal.checked(names(conf_dir)).unwrap_or_default();
    for name in names.iter().filter(|name| is_ours(name)) {
        remove(&conf_dir.join(name), journal);
    }
}

/// Removes the plugins. Every version has them under these names.
pub(super) fn remove_plugins(bin_dir: &Path, journal: &mut Journal<'_>) {
    for name in PLUGINS {
        remove(&bin_dir.join(name), journal);
    }
    for draft in journal.checked(drafts(bin_dir)).unwrap_or_default() {
        remove(&draft, journal);
    }
}

/// Removes what `tweed-install host` has installed, except the agent's flags. Edited files
/// stay.
pub(super) fn remove_host_install(places: &Places, journal: &mut Journal<'_>) {
    let Some(installed) = journal.checked(host::installed(places)) else {
        return;
    };
    let environment = places.on_host(ENVIRONMENT);
    for file in installed.iter().filter(|file| file.path != environment) {
        remove_unedited(file, journal);
    }
}

/// Removes the agent's flags, which say where its files are: until nothing else is left, the
/// next uninstallation needs them.
pub(super) fn remove_environment(places: &Places, journal: &mut Journal<'_>) {
    let environment = places.on_host(ENVIRONMENT);
    if journal.failures() > 0 && environment.exists() {
        let why = "the next uninstallation reads in it where tweed's files are";
        return journal.kept(environment.display(), why);
    }
    let installed = journal.checked(host::installed(places)).unwrap_or_default();
    if let Some(file) = installed.iter().find(|file| file.path == environment) {
        remove_unedited(file, journal);
    }
    remove_empty(&host::config_dir(places), journal);
}

fn remove_unedited(file: &Installed, journal: &mut Journal<'_>) {
    if file.edited {
        journal.kept(file.path.display(), "it was edited; remove it by hand")
    } else {
        remove(&file.path, journal)
    }
}

/// Removes the state. The lock is removed last: until then no agent starts. The
/// file of sysctls stays while something is left to do with its `values`.
pub(super) fn remove_run_dir(run_dir: &Path, values: Values, journal: &mut Journal<'_>) {
    let Some(names) = journal.checked(names(run_dir)) else {
        return;
    };
    // Drafts are left when the agent is killed.
    let is_ours = |name: &str| {
        let prefixes = [DRAFT_PREFIX, BASELINE];
        STATE.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    for name in names.iter().filter(|name| is_ours(name)) {
        remove(&run_dir.join(name), journal);
    }
    let there = |name: &str| names.iter().any(|found| found == name);
    let found = run_dir.join(FOUND);
    match values {
        _ if !there(FOUND) => {}
        Values::Restored => remove(&found, journal),
        Values::NotRestored => {
            journal.kept(found.display(), "a sysctl has not been restored yet");
        }
        Values::NeededLater => journal.kept(
            found.display(),
            "it has the values from before tweed of forwarding and what belongs to it. Until the \
             next boot, an uninstall that finds nobody who may rely on forwarding restores them",
        ),
    }
    if there(AGENT_LOCK) {
        remove(&run_dir.join(AGENT_LOCK), journal);
    }
    remove_empty(run_dir, journal);
}

/// Removes a file, a link, or a folder with its content, if it exists.
fn remove(path: &Path, journal: &mut Journal<'_>) {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return;
    };
    journal.act(Action::REMOVE, path.display(), || {
        let removed = if metadata.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        InstallError::if_exists("remove", path, removed).map(drop)
    });
}

/// Removes a folder if it is empty.
pub(super) fn remove_empty(folder: &Path, journal: &mut Journal<'_>) {
    if !folder.is_dir() {
        return;
    }
    if journal.is_rehearsal() {
        return journal.line(format_args!("would remove {}, if empty", folder.display()));
    }
    let Err(error) = fs::remove_dir(folder) else {
        return journal.line(format_args!("removed {}", folder.display()));
    };
    let left = names(folder).unwrap_or_default();
    match error.kind() {
        // A mounted folder cannot be removed in a pod, and the root may be read-only.
        io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem if left.is_empty() => {
            journal.kept(
                folder.display(),
                "it is empty, and mounted here; the next boot removes it, or rmdir on the machine",
            );
        }
        _ if !left.is_empty() => journal.kept(
            folder.display(),
            format_args!("it still contains {}", left.join(", ")),
        ),
        _ => journal.failed(InstallError::file("remove", folder)(error)),
    }
}
