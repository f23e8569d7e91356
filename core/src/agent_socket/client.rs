//! Asking the agent, without threads and in bounded time.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::message::{Message, MessageError};
use super::path::{AGENT_SOCKET, with_short_path};

/// The agent was not asked, or has not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket, or nobody listens on it.
    #[error("tweed-agent is not running: nobody listens on {}", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// More clients wait to be accepted than the kernel lets wait.
    #[error("tweed-agent takes no requests on {}", path.display())]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// No answer came in time.
    #[error("tweed-agent has not answered in time")]
    Silent,
    /// It answers something else, or only a part.
    #[error("tweed-agent answers {0}")]
    Answer(#[source] MessageError),
    /// The request cannot be sent as it is.
    #[error("the request is {0}")]
    Request(#[source] MessageError),
    /// The socket fails.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What failed: `connect to`, `write to`, `read from`.
        operation: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A connection to the agent, for one request.
#[derive(Debug)]
pub struct Connection {
    path: PathBuf,
    stream: UnixStream,
}

impl Connection {
    /// Connects to the agent of this run folder and sends it `request`. This never
    /// waits: if the agent does not take connections, it is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(run_dir: &Path, request: &impl Message) -> Result<Self, ClientError> {
        let line = request.to_line().map_err(ClientError::Request)?;
        let path = run_dir.join(AGENT_SOCKET);
        let io = |operation| {
            let path = path.clone();
            move |source: io::Error| match source.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    ClientError::NotRunning { path }
                }
                ErrorKind::WouldBlock => ClientError::Busy { path },
                _ => ClientError::Io {
                    operation,
                    path,
                    source,
                },
            }
        };
        let fd = with_short_path(run_dir, AGENT_SOCKET, connected).map_err(io("connect to"))?;
        let mut stream = UnixStream::from(fd);
        // The buffer of a new socket has room for a whole request.
        stream.write_all(&line).map_err(io("write to"))?;
        Ok(Self { path, stream })
    }

    /// Waits for the answer until `deadline`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn answer<A: Message>(mut self, deadline: Instant) -> Result<A, ClientError> {
        let mut received = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ClientError::Answer(MessageError::Cut)),
                Ok(length) => {
                    received.extend(piece.iter().take(length));
                    let answer = A::from_received(&received).map_err(ClientError::Answer)?;
                    if let Some(answer) = answer {
                        return Ok(answer);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(deadline)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(error)),
            }
        }
    }

    /// Waits until there is something to read.
    fn wait(&self, deadline: Instant) -> Result<(), ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: less than a millisecond would be a busy loop.
        let milliseconds = left.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) => Err(ClientError::Silent),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(self.unreadable(error.into())),
        }
    }

    fn unreadable(&self, source: io::Error) -> ClientError {
        ClientError::Io {
            operation: "read from",
            path: self.path.clone(),
            source,
        }
    }
}

/// A socket that is connected to `path` and never blocks: connecting to a listener
/// whose queue is full would wait without end.
fn connected(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}
