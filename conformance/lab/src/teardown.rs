//! The journal of a lab on disk, and how its objects are removed.
//!
//! `/run/tweed-lab/<lab>/` holds `owner` (the process that created it),
//! `namespaces/<name>`, `processes/<pid>` (with the process's start time),
//! `cgroups/<name>`, `mounts/<folder>`, the nodes' state, and `external`, a link
//! to the one folder elsewhere that is removed with the lab. [`take_down`] needs
//! only this folder: a drop, a signal, `tweed-lab down` and the removal of what a
//! killed program has left use the same code.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cgroups::Cgroups;
use crate::error::LabError;
use crate::run::run_holding_guard;

/// The folder of all journals.
pub(crate) const ROOT: &str = "/run/tweed-lab";

/// In a lab's folder: the link to a folder elsewhere that is removed with the lab.
pub(crate) const EXTERNAL: &str = "external";

/// The process that created a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: distinguishes the process from a later one
    /// with the same ID.
    pub(crate) start_time: u64,
    /// The inode of its PID namespace, in which `pid` counts.
    #[serde(default = "own_pid_namespace")]
    pub(crate) pid_namespace: u64,
    /// Whether the lab stays when the process ends.
    pub(crate) kept: bool,
}

impl Owner {
    pub(crate) fn this_process() -> Self {
        let pid = std::process::id().cast_signed();
        Self {
            pid,
            start_time: start_time(pid).unwrap_or_default(),
            pid_namespace: own_pid_namespace(),
            kept: false,
        }
    }

    fn is_elsewhere(&self) -> bool {
        self.pid_namespace != own_pid_namespace()
    }

    fn is_alive(&self) -> bool {
        !self.is_elsewhere() && start_time(self.pid) == Some(self.start_time)
    }
}

/// A lab on this machine.
#[derive(Debug, Clone)]
pub struct ExistingLab {
    /// Its name.
    pub name: String,
    /// Whether it was kept on purpose ([`Lab::keep`](crate::Lab::keep)).
    pub kept: bool,
    /// Whether the program that created it still runs.
    pub in_use: bool,
    /// Whether that program is in another PID namespace, where it cannot be looked for: only
    /// a person knows whether the lab is left.
    pub elsewhere: bool,
    pid: i32,
}

impl ExistingLab {
    /// Whether it was left by a program that was killed, for certain.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.kept && !self.in_use && !self.elsewhere
    }

    /// Its state as part of a sentence: kept, in use, or left by a killed process.
    #[must_use]
    pub fn state(&self) -> String {
        let pid = self.pid;
        match (self.kept, self.in_use) {
            (true, _) => "kept on purpose".to_owned(),
            (false, true) => format!("in use by process {pid}"),
            (false, false) if self.elsewhere => {
                format!("of process {pid} of another PID namespace")
            }
            (false, false) => format!("left by process {pid}, which was killed"),
        }
    }
}

/// The labs on this machine, sorted by name.
///
/// # Errors
/// [`LabError::File`] if the folder of the journals exists but cannot be read.
pub fn existing_labs() -> Result<Vec<ExistingLab>, LabError> {
    let mut found = Vec::new();
    for name in names_in(Path::new(ROOT))? {
        if name.starts_with('.') {
            continue;
        }
        let recorded = fs::read(folder_of(&name).join("owner"))
            .ok()
            .and_then(|text| serde_json::from_slice::<Owner>(&text).ok());
        // The folder gets its name when the owner is already in it, so a folder
        // without an owner is partly removed.
        let owner = recorded.unwrap_or(Owner {
            pid: 0,
            start_time: 0,
            pid_namespace: own_pid_namespace(),
            kept: false,
        });
        found.push(ExistingLab {
            name,
            kept: owner.kept,
            in_use: owner.is_alive(),
            elsewhere: owner.is_elsewhere(),
            pid: owner.pid,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Removes a lab: ends its processes, deletes its namespaces, cgroups, mounts and
/// its folder. Returns the names of the deleted namespaces, which are none if
/// there is no such lab.
///
/// # Errors
/// The first failure. Everything else is removed nevertheless, and the journal
/// stays, so that it can be tried again.
pub fn take_down(name: &str) -> Result<Vec<String>, LabError> {
    // Only one at a time: a drop, a signal and another program may do it at once.
    let root = Path::new(ROOT);
    let lock = match fs::File::open(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.and_then(|file| file.lock().map(|()| file)),
    };
    let _until_the_end = lock.map_err(|e| LabError::file("lock", root, e))?;
    let folder = folder_of(name);
    let mut first_error = None;
    let mut deleted = Vec::new();
    end_processes(&folder.join("processes"))?;
    for namespace in names_in(&folder.join("namespaces"))? {
        match delete_namespace(&namespace) {
            Ok(()) => deleted.push(namespace),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error = remove_cgroups(&folder.join("cgroups"))
        .err()
        .or(first_error);
    first_error = unmount(&folder).err().or(first_error);
    if let Some(error) = first_error {
        return Err(error);
    }
    // Before the lab's folder, which has the link to it.
    if let Ok(outside) = fs::read_link(folder.join(EXTERNAL)) {
        remove_folder(&outside)?;
    }
    remove_folder(&folder)?;
    Ok(deleted)
}

/// Removes a folder. It is no error if it does not exist.
fn remove_folder(folder: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::file("remove", folder, error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn folder_of(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// Deletes a named namespace. It is no error if it does not exist.
pub(crate) fn delete_namespace(name: &str) -> Result<(), LabError> {
    let path = Path::new("/run/netns").join(name);
    if !path.exists() {
        return Ok(());
    }
    match run_holding_guard(Command::new("ip").args(["netns", "del", name])) {
        Err(error) if path.exists() => Err(error),
        _ => Ok(()),
    }
}

fn end_processes(folder: &Path) -> Result<(), LabError> {
    let mut ended = Vec::new();
    for name in names_in(folder)? {
        let recorded = fs::read_to_string(folder.join(&name))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        if let (Ok(pid), Some(started)) = (name.parse::<i32>(), recorded)
            && start_time(pid) == Some(started)
        {
            // It is no error if the process has ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            ended.push((pid, started));
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline && ended.iter().any(|(pid, at)| start_time(*pid) == Some(*at)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn remove_cgroups(journal: &Path) -> Result<(), LabError> {
    let groups = names_in(journal)?;
    if groups.is_empty() {
        return Ok(());
    }
    let cgroups = Cgroups::mounted()?;
    groups.iter().try_for_each(|group| cgroups.remove(group))
}

/// Unmounts what the journal in the lab's `folder` names, below that folder.
fn unmount(folder: &Path) -> Result<(), LabError> {
    for name in names_in(&folder.join("mounts"))? {
        let path = folder.join(name);
        match umount2(&path, MntFlags::MNT_DETACH) {
            // EINVAL: nothing is mounted there.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(LabError::file("unmount", &path, errno.into())),
        }
    }
    Ok(())
}

/// The inode of this process's PID namespace; 0 if it cannot be read.
fn own_pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The time when a process started, in clock ticks since boot; `None` if there is
/// no such process or it is a zombie.
#[must_use]
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name, may contain spaces and ')': count from its end.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Whether a process has ended but some of its threads have not. Until they have,
/// its sockets are open and its ports in use.
#[must_use]
pub fn is_dying(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    start_time(pid).is_none() && threads.is_ok_and(|threads| threads.count() > 1)
}

fn names_in(folder: &Path) -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LabError::file("read", folder, error)),
    };
    entries
        .map(|entry| {
            entry
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .map_err(|error| LabError::file("read", folder, error))
        })
        .collect()
}
