//! Checks that enough inotify instances are left. Linux counts them by user, in all
//! namespaces together, and a kubelet that gets none ends at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use tweed_lab::LabError;

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";

/// Instances that a node uses (measured): kubelet 6 to 7, containerd 2, kube-proxy 1.
const PER_NODE: usize = 10;

/// Instances that the four programs of a control plane use (measured).
const PER_CONTROL_PLANE: usize = 8;

/// Checks that enough are left for a control plane and this number of nodes.
pub(super) fn check_cluster(nodes: usize) -> Result<(), LabError> {
    check(PER_CONTROL_PLANE + nodes * PER_NODE)
}

/// Checks that enough are left for one more node.
pub(super) fn check_node() -> Result<(), LabError> {
    check(PER_NODE)
}

fn check(needed: usize) -> Result<(), LabError> {
    let path = Path::new(LIMIT);
    let text = fs::read_to_string(path).map_err(|e| LabError::file("read", path, e))?;
    let limit = text.trim().parse().map_err(|_| LabError::Output {
        command: format!("cat {LIMIT}"),
        expected: "a number",
        output: text,
    })?;
    fits(needed, in_use(), limit)
}

fn fits(needed: usize, used: usize, limit: usize) -> Result<(), LabError> {
    if used.saturating_add(needed) <= limit {
        return Ok(());
    }
    Err(LabError::Inotify {
        needed,
        used,
        limit,
    })
}

/// The number that this user's processes have open. A process that ends meanwhile has none.
fn in_use() -> usize {
    let user = geteuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| process.metadata().is_ok_and(|meta| meta.uid() == user))
        .flat_map(|process| fs::read_dir(process.path().join("fd")))
        .flatten()
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter(|target| target.as_os_str() == "anon_inode:inotify")
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instance_may_be_taken_and_no_more() {
        fits(48, 80, 128).unwrap();
        let refused = fits(48, 81, 128).unwrap_err().to_string();
        for part in ["48", "81 of 128", "fs.inotify.max_user_instances=512"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
