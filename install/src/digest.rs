//! The SHA-256 of a file: of a program as it is to be, and as it was written.

use std::io::{self, Read};
use std::{fmt, path::Path};

use sha2::{Digest as _, Sha256};
use tweed_core::regular_file;

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of the content of `reader`.
    ///
    /// # Errors
    /// The reader's.
    pub fn of(mut reader: impl Read) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self(hash.finalize().into())),
                Ok(length) => hash.update(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Of a file.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Self::of(regular_file::open(path)?)
    }

    /// Of a text.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// From 64 hex digits, as `sha256sum` writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
