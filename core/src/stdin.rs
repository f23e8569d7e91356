//! The standard input of a plugin, as its caller may leave it.
//!
//! A caller may have set it to non-blocking, and who asks for VERSION by hand has a terminal
//! or a connection there that nobody closes. The reference plugins can be called in both ways.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A file that is read whether it blocks or not.
#[derive(Debug)]
pub struct Stdin<F> {
    file: F,
    until: Option<Instant>,
}

impl<F: Read + AsFd> Stdin<F> {
    /// Reads `file`; with a limit, an input that has not ended by then is an error.
    pub fn new(file: F, limit: Option<Duration>) -> Self {
        Self {
            file,
            until: limit.map(|limit| Instant::now() + limit),
        }
    }

    /// Waits until there is something to read, or the end.
    fn wait(&self) -> io::Result<()> {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = match left {
            Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        let mut files = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, timeout) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) => Ok(()),
            // The caller of `read` calls it again.
            Err(Errno::EINTR) => Err(ErrorKind::Interrupted.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl<F: Read + AsFd> Read for Stdin<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One that blocks and has no limit costs no call more.
        if self.until.is_some() {
            self.wait()?;
        }
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn a_file_that_does_not_block_is_read_to_its_end() {
        let (mut writer, file) = UnixStream::pair().unwrap();
        file.set_nonblocking(true).unwrap();
        let written = thread::spawn(move || {
            for part in ["one ", "two"] {
                // The reader is mostly waiting by now.
                thread::sleep(Duration::from_millis(20));
                writer.write_all(part.as_bytes()).unwrap();
            }
        });
        let mut text = String::new();
        Stdin::new(&file, None).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        written.join().unwrap();
    }

    #[test]
    fn an_input_that_does_not_end_is_not_waited_for_beyond_the_limit() {
        let (mut writer, file) = UnixStream::pair().unwrap();
        writer.write_all(b"a part").unwrap();
        let limit = Some(Duration::from_millis(20));
        let mut bytes = Vec::new();
        let error = Stdin::new(&file, limit).read_to_end(&mut bytes);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(bytes, b"a part");

        drop(writer);
        let limit = Some(Duration::from_secs(600));
        assert_eq!(Stdin::new(&file, limit).read_to_end(&mut bytes).unwrap(), 0);
    }
}
