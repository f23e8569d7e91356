//! The archive: tar in frames of zstd, as it is written.

use std::io::{self, Write};

use anyhow::{Context as _, Result};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, Header};

use super::redact;

/// Length of what is compressed at once.
const FRAME: usize = 1024 * 1024;

/// A bundle that is being written.
pub(super) struct Archive<W: Write> {
    tar: Builder<Frames<W>>,
    /// The folder in which everything is.
    folder: String,
    /// When it was made, in seconds since 1970.
    made: u64,
    index: String,
    files: usize,
    errors: usize,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W, folder: &str, made: u64) -> Self {
        let frames = Frames {
            out,
            pending: Vec::new(),
        };
        Self {
            tar: Builder::new(frames),
            folder: folder.to_owned(),
            made,
            index: String::new(),
            files: 0,
            errors: 0,
        }
    }

    /// Adds a file without the secrets in it; if it could not be had, one that says why.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(super) fn add(&mut self, path: &str, content: Result<String, String>) -> Result<()> {
        match content {
            Ok(text) => {
                let text = redact::text(&text);
                self.files += 1;
                self.index += &format!("{:>9} {path}\n", text.len());
                self.append(path, &text)
            }
            Err(why) => {
                let why = redact::text(&why);
                self.errors += 1;
                let path = format!("{path}.error.txt");
                let first = why.lines().next().unwrap_or_default();
                self.index += &format!("    ERROR {path}: {first}\n");
                self.append(&path, &format!("{why}\n"))
            }
        }
    }

    /// Adds the index, and ends the archive. How many files there are, and how many could not
    /// be had.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(super) fn end(mut self, begin: &str) -> Result<(usize, usize)> {
        let index = format!("{begin}\n{}", self.index);
        self.append("index.txt", &index)?;
        let mut frames = self.tar.into_inner()?;
        frames.flush().context("cannot write the archive")?;
        Ok((self.files, self.errors))
    }

    fn append(&mut self, path: &str, text: &str) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.made);
        let path = format!("{}/{path}", self.folder);
        let appended = self.tar.append_data(&mut header, path, text.as_bytes());
        appended.context("cannot write the archive")
    }
}

/// Compresses what is written to it, a frame at a time: a file of zstd may have many.
struct Frames<W: Write> {
    out: W,
    pending: Vec<u8>,
}

impl<W: Write> Frames<W> {
    fn end_frame(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let frame = compress_to_vec(self.pending.as_slice(), CompressionLevel::Fastest);
        self.pending.clear();
        self.out.write_all(&frame)
    }
}

impl<W: Write> Write for Frames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = FRAME - self.pending.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.pending.extend_from_slice(taken);
        if self.pending.len() == FRAME {
            self.end_frame()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_frame()?;
        self.out.flush()
    }
}
