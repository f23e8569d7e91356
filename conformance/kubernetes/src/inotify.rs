//! Whether there are inotify instances for more nodes. Linux counts them by
//! user, in all namespaces together; a kubelet that gets none ends at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use tweed_lab::LabError;

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";

/// What kubelet (6 to 7), containerd (2) and kube-proxy (1) of a node were seen
/// to take.
const OF_NODE: usize = 10;

/// What the four programs of a control plane were seen to take.
const OF_CONTROL_PLANE: usize = 8;

/// Makes sure that a control plane and so many nodes will get what they need.
pub(super) fn check_cluster(nodes: usize) -> Result<(), LabError> {
    check(OF_CONTROL_PLANE + nodes * OF_NODE)
}

/// Makes sure that one more node will get what it needs.
pub(super) fn check_node() -> Result<(), LabError> {
    check(OF_NODE)
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

/// How many this user's processes have open. One that ends meanwhile has none.
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
