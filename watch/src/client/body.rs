//! The body of a response while it arrives. It is read by number of bytes, by
//! line or by length-prefixed frame; only bytes that are not yet read are held.

use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt};
use prost::bytes::Bytes;

use super::Failure;
use crate::protobuf::Malformed;

/// Maximum size of one object, in bytes: ten times what an API server stores
/// (1.5 MiB). A wrong length must not make the agent ask for unlimited memory.
pub(crate) const MAX_OBJECT: usize = 16 << 20;

/// Maximum size of a varint of protobuf, in bytes.
const MAX_VARINT: u64 = 10;

/// Why a body cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("it said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it ended in the middle")]
    Short,
    #[error("{0}")]
    Broken(kube::Error),
    #[error("an object of {0} bytes")]
    TooLarge(u64),
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

impl BodyError {
    /// The failure of a request to the server at `url` that has one answer.
    pub(crate) fn of_answer(self, url: &str) -> Failure {
        match self {
            Self::Silent(waited) => Failure::silent(url, waited),
            Self::Broken(error) => Failure::unreachable(url, &error),
            Self::Short | Self::TooLarge(_) | Self::Malformed(_) => Failure::garbage(url, &self),
        }
    }

    /// The failure of a watch at the server at `url`.
    pub(crate) fn of_watch(self, url: &str) -> Failure {
        match self {
            Self::Silent(_) => Failure::Broken {
                url: url.to_owned(),
                why: self.to_string(),
                is_silent: true,
            },
            Self::Broken(_) | Self::Short => Failure::broken(url, &self.to_string()),
            Self::TooLarge(_) | Self::Malformed(_) => Failure::garbage(url, &self),
        }
    }
}

/// A body, and those of its bytes that have arrived and are not yet read.
pub(crate) struct Body {
    stream: BoxStream<'static, Result<Bytes, kube::Error>>,
    /// Maximum time between two pieces.
    max_silence: Duration,
    buffer: Vec<u8>,
    /// Number of bytes at the start of `buffer` that are read.
    read: usize,
}

impl Body {
    /// A body that arrives in the pieces of `stream`, with this maximum time between
    /// two of them.
    pub(crate) fn new(
        stream: impl Stream<Item = Result<Bytes, kube::Error>> + Send + 'static,
        max_silence: Duration,
    ) -> Self {
        Self {
            stream: stream.boxed(),
            max_silence,
            buffer: Vec::new(),
            read: 0,
        }
    }

    /// Changes the maximum time between two pieces.
    pub(crate) fn set_max_silence(&mut self, max_silence: Duration) {
        self.max_silence = max_silence;
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.read..).unwrap_or_default()
    }

    /// Waits for more bytes; false at the end.
    async fn receive(&mut self) -> Result<bool, BodyError> {
        let next = tokio::time::timeout(self.max_silence, self.stream.next()).await;
        let bytes = match next {
            Err(_) => return Err(BodyError::Silent(self.max_silence)),
            Ok(None) => return Ok(false),
            Ok(Some(bytes)) => bytes.map_err(BodyError::Broken)?,
        };
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(&bytes);
        Ok(true)
    }

    /// Whether everything is read and nothing more arrives.
    pub(crate) async fn is_at_end(&mut self) -> Result<bool, BodyError> {
        while self.unread().is_empty() {
            if !self.receive().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next `length` bytes.
    pub(crate) async fn take(&mut self, length: u64) -> Result<&[u8], BodyError> {
        let length = match usize::try_from(length) {
            Ok(length) if length <= MAX_OBJECT => length,
            _ => return Err(BodyError::TooLarge(length)),
        };
        while self.unread().len() < length {
            if !self.receive().await? {
                return Err(BodyError::Short);
            }
        }
        let start = self.read;
        self.read += length;
        Ok(&self.buffer[start..self.read])
    }

    /// Skips the next `length` bytes.
    pub(crate) async fn skip(&mut self, mut length: u64) -> Result<(), BodyError> {
        loop {
            let available = length.min(self.unread().len() as u64);
            length -= available;
            // Not more than the buffer's length, which is a usize.
            self.read += available as usize;
            if length == 0 {
                return Ok(());
            }
            if !self.receive().await? {
                return Err(BodyError::Short);
            }
        }
    }

    /// The next varint of protobuf, and its length in bytes.
    pub(crate) async fn varint(&mut self) -> Result<(u64, u64), BodyError> {
        let mut value = 0;
        for at in 0..MAX_VARINT {
            let byte = self.take(1).await?.first().copied().unwrap_or_default();
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok((value, at + 1));
            }
        }
        Err(Malformed::Varint.into())
    }

    /// The next line, without its end; `None` after the last.
    pub(crate) async fn line(&mut self) -> Result<Option<&[u8]>, BodyError> {
        let mut searched = 0;
        loop {
            let unread = self.unread();
            let end = unread[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.read..self.read + searched + end;
                self.read = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            searched = unread.len();
            if searched > MAX_OBJECT {
                return Err(BodyError::TooLarge(searched as u64));
            }
            if !self.receive().await? {
                let line = self.read..self.buffer.len();
                self.read = line.end;
                return Ok((!line.is_empty()).then(|| &self.buffer[line]));
            }
        }
    }

    /// The next frame of a watch in protobuf, which has its length in four
    /// bytes before it; `None` after the last.
    pub(crate) async fn frame(&mut self) -> Result<Option<&[u8]>, BodyError> {
        if self.is_at_end().await? {
            return Ok(None);
        }
        let mut length = 0;
        for byte in self.take(4).await? {
            length = length << 8 | u64::from(*byte);
        }
        self.take(length).await.map(Some)
    }

    /// All that is left, if that is not more than `max` bytes.
    pub(crate) async fn rest(&mut self, max: usize) -> Result<&[u8], BodyError> {
        while self.receive().await? {
            if self.unread().len() > max {
                return Err(BodyError::TooLarge(self.unread().len() as u64));
            }
        }
        Ok(self.unread())
    }
}
