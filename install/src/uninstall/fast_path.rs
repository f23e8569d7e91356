//! Removal of the fast path. Its programs run as long as something holds their links, and with
//! the agent stopped that is only the pins in bpffs.

use std::{fs, path::Path};

use super::files::remove_empty;
use crate::journal::{Action, Journal};
use crate::{displaced::names, error::InstallError};

/// The folders of pins, and what each pin is. The links go first: a program that still runs
/// keeps its maps where the next agent finds them.
const FOLDERS: [(&str, &str); 2] = [("links", "hook"), ("maps", "map")];

/// Removes the pins, and with them the programs. Where there is no bpffs, or was no fast path,
/// there is nothing to do.
pub(super) fn remove(bpf_dir: &Path, journal: &mut Journal<'_>) {
    if !bpf_dir.is_dir() {
        return;
    }
    for (name, what) in FOLDERS {
        let folder = bpf_dir.join(name);
        if !folder.is_dir() {
            continue;
        }
        let Some(pins) = journal.checked(names(&folder)) else {
            return;
        };
        let plural = if pins.len() == 1 { "" } else { "s" };
        let object = format!(
            "{}: {} {what}{plural} of the fast path",
            folder.display(),
            pins.len()
        );
        let removed = journal.act(Action::REMOVE, object, || {
            let removed = fs::remove_dir_all(&folder);
            InstallError::if_exists("remove", &folder, removed).map(drop)
        });
        if !removed && !journal.is_rehearsal() {
            return;
        }
    }
    remove_empty(bpf_dir, journal);
}
