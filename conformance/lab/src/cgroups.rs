//! The cgroup of a node: a group of the same name in every mounted hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::LabError;

/// Maximum time until the killed processes of a group have ended.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    is_unified: bool,
}

/// The mounted hierarchies: those of version 1, that of version 2, or both.
#[derive(Debug)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Finds the hierarchies in the mount table of this process.
    ///
    /// # Errors
    /// [`LabError::File`] if the mount table cannot be read.
    pub fn mounted() -> Result<Self, LabError> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(|e| LabError::file("read", path, e))?;
        Ok(Self {
            hierarchies: hierarchies(&mounts),
        })
    }

    /// Creates the group in every hierarchy.
    ///
    /// # Errors
    /// [`LabError::File`] for the first hierarchy that refuses.
    pub fn create(&self, group: &str) -> Result<(), LabError> {
        for hierarchy in &self.hierarchies {
            let folder = hierarchy.mount.join(group);
            fs::create_dir_all(&folder).map_err(|e| LabError::file("create", &folder, e))?;
            // No process can join a new cpuset group until it has CPUs.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (from, to) = (hierarchy.mount.join(file), folder.join(file));
                if !hierarchy.is_unified && from.exists() {
                    fs::copy(&from, &to).map_err(|e| LabError::file("fill", &to, e))?;
                }
            }
        }
        Ok(())
    }

    /// The files to which the node's first process writes its process ID to join.
    #[must_use]
    pub fn files_of_first_process(&self, group: &str) -> Vec<PathBuf> {
        self.procs(group, "")
    }

    /// The same for all later processes. With version 2 alone they join the group
    /// `init` below: only a group without processes can delegate controllers.
    #[must_use]
    pub fn files_of_later_processes(&self, group: &str) -> Vec<PathBuf> {
        let only_unified = self.hierarchies.iter().all(|one| one.is_unified);
        self.procs(group, if only_unified { "init" } else { "" })
    }

    fn procs(&self, group: &str, below: &str) -> Vec<PathBuf> {
        self.hierarchies
            .iter()
            .map(|one| one.mount.join(group).join(below).join("cgroup.procs"))
            .collect()
    }

    /// Removes the group with all groups below it. Its processes have been killed
    /// and may need a moment to end.
    ///
    /// # Errors
    /// [`LabError::File`] if a process is still in it after 10 s.
    pub fn remove(&self, group: &str) -> Result<(), LabError> {
        let start = Instant::now();
        loop {
            let removed = self
                .hierarchies
                .iter()
                .map(|hierarchy| hierarchy.mount.join(group))
                .try_for_each(|folder| {
                    remove_tree(&folder).map_err(|e| LabError::file("remove", &folder, e))
                });
            // Not `wait_until`: the signal handler calls this, and after a
            // failure `wait_until` would wait for the signal handler.
            if removed.is_ok() || start.elapsed() >= REMOVAL_LIMIT {
                return removed;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a group and those below it. It is no error if it does not exist.
fn remove_tree(folder: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The hierarchies in a `/proc/<pid>/mountinfo`; each only once, even if it is
/// mounted several times.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<(String, Hierarchy)> = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = left.split(' ');
        let (device, mount) = (fields.nth(2), fields.nth(1));
        let kind = right.split(' ').next();
        if let (Some(device), Some(mount), Some(kind @ ("cgroup" | "cgroup2"))) =
            (device, mount, kind)
            && found.iter().all(|(known, _)| known != device)
        {
            let hierarchy = Hierarchy {
                mount: PathBuf::from(mount),
                is_unified: kind == "cgroup2",
            };
            found.push((device.to_owned(), hierarchy));
        }
    }
    found.into_iter().map(|(_, hierarchy)| hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
90 31 0:27 / /mnt/again rw,relatime - cgroup cgroup rw,cpu,cpuacct
";

    fn procs(mountinfo: &str) -> [Vec<String>; 2] {
        let cgroups = Cgroups {
            hierarchies: hierarchies(mountinfo),
        };
        [
            cgroups.files_of_first_process("g"),
            cgroups.files_of_later_processes("g"),
        ]
        .map(|paths| paths.iter().map(|p| p.display().to_string()).collect())
    }

    #[test]
    fn each_hierarchy_counts_once() {
        let [first, later] = procs(HYBRID);
        let expected = ["cpu,cpuacct", "systemd", "unified"];
        assert_eq!(
            first,
            expected.map(|one| format!("/sys/fs/cgroup/{one}/g/cgroup.procs"))
        );
        assert_eq!(first, later);
    }

    #[test]
    fn with_version_2_alone_later_processes_join_a_group_below() {
        let [first, later] = procs("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(first, ["/sys/fs/cgroup/g/cgroup.procs"]);
        assert_eq!(later, ["/sys/fs/cgroup/g/init/cgroup.procs"]);
    }
}
