//! The lab itself: a name, a folder, and the journal of what was created.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};

use crate::error::LabError;
use crate::netns::Netns;
use crate::programs::Programs;
use crate::run::command_line;
use crate::signals::{block_if_shutting_down, delay_shutdown, on_signal};
use crate::teardown::{EXTERNAL, Owner, existing_labs, folder_of, start_time, take_down};

/// A lab: everything in it has a name that starts with the lab's.
///
/// Clones are handles to the same lab; the last handle's drop takes it down.
/// Nodes, pods and processes hold one each.
#[derive(Debug, Clone)]
pub struct Lab {
    core: Arc<LabCore>,
}

#[derive(Debug)]
pub(crate) struct LabCore {
    name: String,
    folder: PathBuf,
    programs: Programs,
    kept: AtomicBool,
    /// Created by another program, so this one does not remove it.
    is_borrowed: bool,
}

impl Lab {
    /// A lab for a test, with a unique name (`t<pid>-<n>`), so that any number of
    /// labs can exist at once. Removes what killed tests have left.
    ///
    /// # Errors
    /// No root, a missing program, or a folder that cannot be written.
    pub fn new() -> Result<Self, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        for old in existing_labs()? {
            if old.name.starts_with('t') && old.is_left() {
                take_down(&old.name)?;
            }
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::create(format!("t{}-{number}", std::process::id()))
    }

    /// A lab with a name chosen by the user.
    ///
    /// # Errors
    /// As [`Lab::new`]; [`LabError::Exists`] if there is one of that name.
    pub fn named(name: &str) -> Result<Self, LabError> {
        if let Some(old) = existing_labs()?.into_iter().find(|old| old.name == name) {
            return Err(LabError::Exists {
                name: name.to_owned(),
                state: old.state(),
            });
        }
        Self::create(name.to_owned())
    }

    /// A lab that another program has created and kept ([`Lab::keep`]). What this
    /// process creates in it is removed on drop as usual; the lab stays.
    ///
    /// # Errors
    /// [`LabError::Absent`] if there is no kept lab of that name.
    pub fn open(name: &str) -> Result<Self, LabError> {
        if !existing_labs()?
            .iter()
            .any(|lab| lab.name == name && lab.kept)
        {
            return Err(LabError::Absent {
                name: name.to_owned(),
            });
        }
        Ok(Self {
            core: Arc::new(LabCore {
                name: name.to_owned(),
                folder: folder_of(name),
                programs: Programs::find()?,
                kept: AtomicBool::new(false),
                is_borrowed: true,
            }),
        })
    }

    fn create(name: String) -> Result<Self, LabError> {
        if name.starts_with('.') || name.contains('/') || name.is_empty() {
            return Err(LabError::Name {
                name,
                why: "it becomes the name of a folder: it must not contain '/' or start with '.'",
            });
        }
        if !nix::unistd::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        let programs = Programs::find()?;
        let folder = folder_of(&name);
        let draft = folder_of(&format!(".new-{name}-{}", std::process::id()));
        write_journal(&draft, &folder, &programs).inspect_err(|_| {
            // The first error is returned; it says more than one of this removal.
            let _ = fs::remove_dir_all(&draft);
        })?;
        let core = Arc::new(LabCore {
            name,
            folder,
            programs,
            kept: AtomicBool::new(false),
            is_borrowed: false,
        });
        on_signal(Arc::downgrade(&core))?;
        Ok(Self { core })
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// The lab's folder: it holds logs, node files and the nodes' state.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.core.folder
    }

    /// The programs that this lab runs.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.core.programs
    }

    /// A folder with all CNI plugins, tweed's and the reference ones, like a node's
    /// `/opt/cni/bin`.
    #[must_use]
    pub fn plugin_folder(&self) -> PathBuf {
        self.core.folder.join("bin")
    }

    /// A new, empty network namespace `<lab>-<name>` with `lo` up.
    ///
    /// # Errors
    /// A namespace of that name is there already, or the system refuses.
    pub fn netns(&self, name: &str) -> Result<Netns, LabError> {
        Netns::create(self, name)
    }

    /// A new tmpfs on the folder `name` of the lab's folder, for files that are
    /// written often and must not wait for a disk. Returns its path.
    ///
    /// # Errors
    /// The system refuses.
    pub fn tmpfs(&self, name: &str) -> Result<PathBuf, LabError> {
        self.mount(name, "tmpfs", "mode=0755")
    }

    /// As [`Lab::tmpfs`], of at most this many megabytes: it can be filled without
    /// taking the machine's memory.
    ///
    /// # Errors
    /// The system refuses.
    pub fn small_tmpfs(&self, name: &str, megabytes: u32) -> Result<PathBuf, LabError> {
        self.mount(name, "tmpfs", &format!("mode=0755,size={megabytes}m"))
    }

    /// A bpffs on the folder `name` of the lab's folder, a new one if there is none yet.
    /// Returns its path.
    ///
    /// # Errors
    /// The system refuses.
    pub fn bpffs(&self, name: &str) -> Result<PathBuf, LabError> {
        let path = self.core.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        self.mount(name, "bpf", "mode=0755")
    }

    fn mount(&self, name: &str, kind: &str, options: &str) -> Result<PathBuf, LabError> {
        let path = self.core.folder.join(name);
        fs::create_dir(&path).map_err(|e| LabError::file("create", &path, e))?;
        self.journalled("mounts", name, || {
            let kind = Some(kind);
            mount(kind, &path, kind, MsFlags::empty(), Some(options))
                .map_err(|errno| LabError::file("mount a file system on", &path, errno.into()))
        })?;
        Ok(path)
    }

    /// Keeps the lab when this program ends; [`take_down`] removes it by name.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep(&self) -> Result<(), LabError> {
        let mut owner = Owner::this_process();
        owner.kept = true;
        write_owner(&self.core.folder, &owner)?;
        self.core.kept.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.core.is_kept()
    }

    /// Runs `make`, which creates the object `name` of this kind, with an entry in
    /// the journal. The entry is written first, and removed if `make` fails. No
    /// signal is handled in between.
    ///
    /// # Errors
    /// The error of `make`; [`LabError::File`] if the journal cannot be written.
    pub fn journalled<T>(
        &self,
        kind: &str,
        name: &str,
        make: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let _gate = delay_shutdown();
        let entry = self.core.folder.join(kind).join(name);
        fs::write(&entry, "").map_err(|e| LabError::file("write", &entry, e))?;
        make().inspect_err(|_| {
            // The error of `make` is returned; it says more than one of this removal.
            let _ = fs::remove_file(&entry);
        })
    }

    /// Registers a folder outside the lab's folder, which is removed with the lab.
    /// A lab has at most one.
    ///
    /// # Errors
    /// [`LabError::File`] if there is one already.
    pub fn add_external_folder(&self, folder: &Path) -> Result<(), LabError> {
        let link = self.core.folder.join(EXTERNAL);
        symlink(folder, &link).map_err(|e| LabError::file("create", &link, e))
    }

    /// Removes an entry of the journal after its object has been removed.
    pub fn remove_journal_entry(&self, kind: &str, name: &str) {
        // If it fails, a later teardown looks for an object that does not exist,
        // which is no error.
        let _ = fs::remove_file(self.core.folder.join(kind).join(name));
    }

    /// Starts a process of this lab in a process group of its own, so that Ctrl-C
    /// in a terminal is handled by the lab alone.
    ///
    /// # Errors
    /// [`LabError::Start`], or the journal cannot be written.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, LabError> {
        let _gate = delay_shutdown();
        let mut child = command
            .process_group(0)
            .spawn()
            .map_err(|source| LabError::Start {
                command: command_line(command),
                source,
            })?;
        let pid = child.id();
        let path = self.core.folder.join("processes").join(pid.to_string());
        let started = start_time(pid.cast_signed()).unwrap_or_default();
        match fs::write(&path, started.to_string()) {
            Ok(()) => Ok(child),
            Err(error) => {
                // Without an entry no teardown would find it. Both calls fail only
                // if it has ended.
                let _ = child.kill();
                let _ = child.wait();
                Err(LabError::file("write", &path, error))
            }
        }
    }
}

impl LabCore {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }
}

impl Drop for LabCore {
    #[expect(
        clippy::print_stderr,
        reason = "a drop has no other way to report that something was left"
    )]
    fn drop(&mut self) {
        if self.is_kept() || self.is_borrowed {
            return;
        }
        block_if_shutting_down();
        if let Err(error) = take_down(&self.name) {
            eprintln!("could not remove the lab {}: {}", self.name, error.chain());
        }
    }
}

/// Writes an empty journal as a draft and renames it, so that the folder appears
/// complete, and only if no other lab has the name.
fn write_journal(draft: &Path, folder: &Path, programs: &Programs) -> Result<(), LabError> {
    for part in ["namespaces", "processes", "mounts", "cgroups", "bin"] {
        let path = draft.join(part);
        fs::create_dir_all(&path).map_err(|e| LabError::file("create", &path, e))?;
    }
    programs.link_into(&draft.join("bin"))?;
    write_owner(draft, &Owner::this_process())?;
    fs::rename(draft, folder).map_err(|e| LabError::file("create", folder, e))
}

fn write_owner(folder: &Path, owner: &Owner) -> Result<(), LabError> {
    let path = folder.join("owner");
    let draft = folder.join("owner.new");
    let text = serde_json::json!(owner).to_string();
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|e| LabError::file("write", &path, e))
}
