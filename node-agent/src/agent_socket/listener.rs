//! The socket as a file: made whole, and removed by whoever made it.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::{UnixListener, UnixStream};
use tweed_core::agent_socket::path::{AGENT_SOCKET, with_short_path};

/// Name of the socket before it listens. Only who holds the lock of the instance makes
/// it; the uninstaller removes it by its prefix.
const DRAFT: &str = ".tweed-agent.sock.new";
/// Only root may connect: see [`tweed_core::agent_socket`].
const MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// The socket, which listens. Dropped, it removes its file, unless that is another's.
#[derive(Debug)]
pub struct AgentSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl AgentSocket {
    /// Makes the socket in the run folder, in place of that of an earlier agent. The
    /// caller holds the lock of the instance.
    ///
    /// # Errors
    /// The file cannot be made; or there is no tokio runtime.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        let draft = run_dir.join(DRAFT);
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // The file gets the socket's mode when bind(2) creates it, so that there is no
        // moment in which others may connect. The umask would be the whole process's.
        fchmod(&socket, MODE)?;
        with_short_path(run_dir, DRAFT, |path| {
            Ok(bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?)
        })?;
        listen(&socket, Backlog::MAXCONN)?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        let listener = UnixListener::from_std(listener)?;
        // Renamed once it listens: a client finds the old socket or this one.
        let path = run_dir.join(AGENT_SOCKET);
        let file = file_of(&draft)?;
        fs::rename(&draft, &path)?;
        Ok(Self {
            listener,
            path,
            file,
        })
    }

    /// Whether its path still leads to it. The kernel keeps the file's inode while the
    /// socket lives, so no other file has the number.
    pub(super) fn is_in_place(&self) -> bool {
        file_of(&self.path).is_ok_and(|file| file == self.file)
    }

    /// A new socket in its run folder.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub(super) fn reopen(&self) -> io::Result<Self> {
        Self::open(self.path.parent().unwrap_or(Path::new("")))
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        if self.is_in_place() {
            // A socket that is left is replaced by the next agent.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn only_root_may_connect_and_nothing_is_left() {
        let run_dir = tempfile::tempdir().unwrap();
        let path = run_dir.path().join(AGENT_SOCKET);
        let socket = AgentSocket::open(run_dir.path()).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(socket);
        assert_eq!(fs::read_dir(run_dir.path()).unwrap().count(), 0);
    }

    /// bind(2) takes the mode from the socket, which no document promises.
    #[tokio::test]
    async fn the_file_has_its_mode_from_its_first_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        fchmod(&fd, MODE).unwrap();
        bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[tokio::test]
    async fn what_a_killed_agent_left_is_replaced() {
        let run_dir = tempfile::tempdir().unwrap();
        let path = run_dir.path().join(AGENT_SOCKET);
        for left in [AGENT_SOCKET, DRAFT] {
            // A socket of std stays when it is closed, as after a kill.
            drop(std::os::unix::net::UnixListener::bind(run_dir.path().join(left)).unwrap());
        }
        let socket = AgentSocket::open(run_dir.path()).unwrap();
        let connected = UnixStream::connect(&path).await;
        connected.unwrap();
        socket.accept().await.unwrap();
        assert!(!run_dir.path().join(DRAFT).exists());
    }

    #[tokio::test]
    async fn another_agents_socket_stays() {
        let run_dir = tempfile::tempdir().unwrap();
        let first = AgentSocket::open(run_dir.path()).unwrap();
        let second = AgentSocket::open(run_dir.path()).unwrap();
        drop(first);
        let path = run_dir.path().join(AGENT_SOCKET);
        UnixStream::connect(&path).await.unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_deep_run_folder_has_a_socket_too() {
        let root = tempfile::tempdir().unwrap();
        let run_dir = root.path().join("deep/".repeat(50));
        fs::create_dir_all(&run_dir).unwrap();
        let socket = AgentSocket::open(&run_dir).unwrap();
        assert_eq!(mode(&run_dir.join(AGENT_SOCKET)), 0o600);
        drop(socket);
        assert!(!run_dir.join(AGENT_SOCKET).exists());
    }

    #[tokio::test]
    async fn a_folder_that_is_missing_is_an_error() {
        let error = AgentSocket::open(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
