//! The socket's path.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Name of the socket in the run folder.
pub const AGENT_SOCKET: &str = "agent.sock";

/// Maximum length of a socket's path, in bytes: `sun_path` has 108 with the zero byte
/// at its end, unix(7).
const MAX_PATH: usize = 107;

/// Calls `work` with a path of `name` in `folder` that fits into the address of a
/// socket. Where the usual path is too long, it leads through the open folder.
///
/// # Errors
/// That of `work`, or the folder cannot be opened.
pub fn with_short_path<T>(
    folder: &Path,
    name: &str,
    work: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().len() <= MAX_PATH {
        return work(&path);
    }
    let only_a_place = OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut options = File::options();
    options.read(true).custom_flags(only_a_place.bits());
    let folder = options.open(folder)?;
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    work(Path::new(&path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_folder_of_any_depth_can_have_the_socket() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a".to_owned(), "long/".repeat(100)] {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let listener = with_short_path(&folder, AGENT_SOCKET, |path| UnixListener::bind(path));
            let _listener = listener.unwrap();
            assert!(folder.join(AGENT_SOCKET).exists());
            with_short_path(&folder, AGENT_SOCKET, |path| UnixStream::connect(path)).unwrap();
        }
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["missing".to_owned(), "missing/".repeat(100)] {
            let folder = root.path().join(folder);
            let error = with_short_path(&folder, AGENT_SOCKET, |path| UnixStream::connect(path));
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
