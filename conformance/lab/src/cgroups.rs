//! The cgroup of a node: one of the same name in every hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::LabError;

/// How long killed processes may take to be gone.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    is_unified: bool,
}

/// What the machine has mounted: those of version 1, that of version 2, or
/// both side by side.
#[derive(Debug)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Looks at the mounts of this process.
    pub fn of_machine() -> Result<Self, LabError> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(|e| LabError::file("read", path, e))?;
        Ok(Self {
            hierarchies: hierarchies(&mounts),
        })
    }

    /// Makes the group everywhere.
    pub fn create(&self, group: &str) -> Result<(), LabError> {
        for hierarchy in &self.hierarchies {
            let folder = hierarchy.mount.join(group);
            fs::create_dir_all(&folder).map_err(|e| LabError::file("create", &folder, e))?;
            // A new group of this controller has no CPUs: nothing may join it.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (from, to) = (hierarchy.mount.join(file), folder.join(file));
                if !hierarchy.is_unified && from.exists() {
                    fs::copy(&from, &to).map_err(|e| LabError::file("fill", &to, e))?;
                }
            }
        }
        Ok(())
    }

    /// The files into which the node's first process writes its number.
    pub fn first(&self, group: &str) -> Vec<PathBuf> {
        self.procs(group, "")
    }

    /// The files for all later ones. Where all is version 2, the first process
    /// has moved into a group below, to let controllers be handed down.
    pub fn later(&self, group: &str) -> Vec<PathBuf> {
        let only_unified = self.hierarchies.iter().all(|one| one.is_unified);
        self.procs(group, if only_unified { "init" } else { "" })
    }

    fn procs(&self, group: &str, below: &str) -> Vec<PathBuf> {
        self.hierarchies
            .iter()
            .map(|one| one.mount.join(group).join(below).join("cgroup.procs"))
            .collect()
    }

    /// Takes the group away, with all below it. Its processes have been killed,
    /// and may need a moment to be gone.
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
            // Not `wait_until`: the signal handler calls this, and whatever
            // fails there must not wait for the signal handler.
            if removed.is_ok() || start.elapsed() >= REMOVAL_LIMIT {
                return removed;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a group and those below it; one that is gone is no error.
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

/// The hierarchies in a `/proc/<pid>/mountinfo`; each once, however often it
/// is mounted.
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
        [cgroups.first("g"), cgroups.later("g")]
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
    fn where_all_is_version_2_later_processes_go_below() {
        let [first, later] = procs("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(first, ["/sys/fs/cgroup/g/cgroup.procs"]);
        assert_eq!(later, ["/sys/fs/cgroup/g/init/cgroup.procs"]);
    }
}
