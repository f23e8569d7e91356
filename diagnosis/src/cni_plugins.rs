//! CNI plugins that whoever asks cannot look at, although the runtime may run them: what a
//! symbolic link leads to, or the program that loads a plugin, may be on the host and not in
//! the container of the agent.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use tweed_core::problem::{Problem, ProblemKind};

/// What follows if the reference plugin `loopback` is not in the runtime's folder. CRI-O brings
/// up `lo` by itself.
pub const WITHOUT_LOOPBACK: &str = "containerd starts no pod without this reference plugin, unless \
    its config has use_internal_loopback = true";
/// As many links as the kernel follows for one path.
const LINKS_MAX: usize = 40;

/// The first path that does not exist on the way of the symbolic links from `path`; none if
/// `path` is no link, or leads to a file.
pub fn missing_target(path: &Path) -> Option<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let is_link = match fs::symlink_metadata(&at) {
            Ok(found) => found.is_symlink(),
            Err(error) if error.kind() == ErrorKind::NotFound && at != path => return Some(at),
            Err(_) => return None,
        };
        if !is_link {
            return None;
        }
        let target = fs::read_link(&at).ok()?;
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    None
}

/// The plugin at `path` is a link to `target`, which does not exist for who asks. `without`
/// says what follows.
pub fn link_leads_nowhere(path: &Path, target: &Path, without: &str) -> Problem {
    let folder = target.parent().unwrap_or(target).display();
    let message = format!(
        "{} is a link to {}, which is not seen from here, whatever is on the host: {without}",
        path.display(),
        target.display()
    );
    unusable(path, message).with_cure(format!(
        "copy the program to {} in place of the link, or let the agent see {folder} (its pod: \
         mount it at the same path, by the chart's value agentSees)",
        path.display()
    ))
}

/// The kernel finds the plugin at `path`, but not the program that loads it. `without` says
/// what follows.
pub fn loader_is_missing(path: &Path, without: &str) -> Problem {
    let message = format!(
        "the program that loads {} (an ELF interpreter, or that of a script) is not seen from \
         here, whatever is on the host: {without}",
        path.display()
    );
    unusable(path, message).with_cure(
        "replace it by a statically linked one, as the releases of the reference plugins have it",
    )
}

/// Whether the file system that `path` is on is mounted `noexec`: then nobody can run a program
/// there.
pub fn is_no_exec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC))
}

/// The plugin at `path` is on such a file system. `without` says what follows.
pub fn no_exec(path: &Path, without: &str) -> Problem {
    let message = format!(
        "the file system that {} is on is mounted noexec, so the runtime cannot run it: {without}",
        path.display()
    );
    let cure = "mount it so that its programs can be run (`mount -o remount,exec MOUNTPOINT`, and \
        in /etc/fstab), or give the runtime and tweed another folder for plugins";
    unusable(path, message).with_cure(cure)
}

fn unusable(path: &Path, message: String) -> Problem {
    let object = path.display().to_string();
    Problem::new(ProblemKind::PluginUnusable, object, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_followed_to_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("file", at("good")).unwrap();
        symlink(at("nowhere/portmap"), at("second")).unwrap();
        symlink("second", at("first")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!(missing_target(&at("first")), Some(at("nowhere/portmap")));
        for name in ["file", "good", "loop", "missing"] {
            assert_eq!(missing_target(&at(name)), None, "{name}");
        }
        let problem = link_leads_nowhere(&at("first"), &at("nowhere/portmap"), "no hostPort");
        let folder = at("nowhere").display().to_string();
        assert!(
            problem.cure.contains(&format!("see {folder} ")),
            "{problem}"
        );
    }
}
