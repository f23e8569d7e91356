//! An output whose reader may leave: `tweed-install check | head` is no failure, and what is
//! being done is done to its end.

use std::io::{ErrorKind, Result, Write};

/// Writes as long as somebody reads, and then nothing.
#[derive(Debug)]
pub struct UntilClosed<W>(pub W);

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
