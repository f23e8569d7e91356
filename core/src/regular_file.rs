//! Reading a file that others can write: it may be a FIFO without a writer, or a link to
//! `/dev/zero`, and must neither hang its reader nor fill the memory.
//!
//! A file is opened without blocking, has to be a regular one, and is read up to a limit
//! ([`crate::limits`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is a folder, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is longer than anything that tweed reads there.
    #[error("it is longer than {}", size(*limit))]
    TooLong {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The kernel's error, or text that is no UTF-8.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ReadError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// A limit for people: `64 KiB`.
fn size(limit: u64) -> String {
    if limit >= 1 << 20 {
        format!("{} MiB", limit >> 20)
    } else {
        format!("{} KiB", limit >> 10)
    }
}

/// How such a file is opened: NONBLOCK, as opening a FIFO would otherwise wait for a
/// writer, and reading what the kernel makes, such as `/proc/kmsg`, for something to read.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    options.custom_flags(flags.bits());
    options
}

/// Opens the file for reading. Symbolic links are followed.
///
/// # Errors
/// [`ReadError`]; a folder is not a regular file either.
pub fn open(path: &Path) -> Result<File, ReadError> {
    checked(options().read(true).open(path)?)
}

/// The file, if it is a regular one.
///
/// # Errors
/// [`ReadError`].
pub fn checked(file: File) -> Result<File, ReadError> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(ReadError::NotRegular)
    }
}

/// What is left of an open file, which has at most `limit` bytes.
///
/// # Errors
/// [`ReadError`].
pub fn rest(file: &File, limit: u64) -> Result<Vec<u8>, ReadError> {
    // Files of the kernel say that they are empty.
    let length = file.metadata()?.len().min(limit);
    let mut content = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(ReadError::TooLong { limit });
    }
    Ok(content)
}

/// The content of the file, which has at most `limit` bytes.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    rest(&open(path)?, limit)
}

/// The same as text.
///
/// # Errors
/// [`ReadError`].
pub fn read_text(path: &Path, limit: u64) -> Result<String, ReadError> {
    let text = String::from_utf8(read(path, limit)?);
    Ok(text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        symlink(path("fifo"), path("link to the fifo")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["fifo", "link to the fifo", "zero", ""] {
            let error = read(&path(name), 10).unwrap_err();
            assert!(matches!(error, ReadError::NotRegular), "{name}: {error:?}");
            let error = io::Error::from(error);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(error.to_string(), "it is not a regular file");
        }
        // The kernel opens no socket.
        read(&path("socket"), 10).unwrap_err();
        assert!(read(&path("missing"), 10).unwrap_err().is_missing());
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        symlink(&path, folder.path().join("link")).unwrap();
        assert_eq!(read(&folder.path().join("link"), 4).unwrap(), b"four");
        assert_eq!(read_text(&path, 5).unwrap(), "four");
        let error = read_text(&path, 3).unwrap_err();
        assert!(matches!(error, ReadError::TooLong { limit: 3 }), "{error}");
        // A file with a hole takes no space on the disk.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read(&path, 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 1 MiB");
        fs::write(&path, b"\xff").unwrap();
        assert!(matches!(read_text(&path, 10), Err(ReadError::Io(_))));
        assert_eq!(read(&path, 10).unwrap(), b"\xff");
    }
}
