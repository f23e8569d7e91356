//! The body of an answer as it comes in: bytes are asked for by number, by line
//! or by field, and only those not yet taken are held.

use std::time::Duration;

use http_body_util::{BodyDataStream, BodyExt};
use kube::client::Body;

use futures::StreamExt;

use super::protobuf::{self, LONGEST_VARINT, Malformed};

/// The largest object: several times what the API server's store takes (1.5
/// MiB), so that a broken length does not ask for memory without bound.
const LARGEST: usize = 16 << 20;

/// Why no more comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
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

/// A body, and as much of it as has come in and was not taken.
pub(super) struct Incoming {
    body: BodyDataStream<Body>,
    /// How long it may say nothing.
    patience: Duration,
    buffer: Vec<u8>,
    /// So much of the buffer was taken.
    taken: usize,
}

impl Incoming {
    pub(super) fn new(body: Body, patience: Duration) -> Self {
        Self {
            body: body.into_data_stream(),
            patience,
            buffer: Vec::new(),
            taken: 0,
        }
    }

    fn ahead(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    /// Waits for more; false at the end.
    async fn more(&mut self) -> Result<bool, Cut> {
        let next = tokio::time::timeout(self.patience, self.body.next()).await;
        let bytes = match next {
            Err(_) => return Err(Cut::Silent(self.patience)),
            Ok(None) => return Ok(false),
            Ok(Some(bytes)) => bytes.map_err(Cut::Broken)?,
        };
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(&bytes);
        Ok(true)
    }

    /// Whether everything was taken and nothing more comes.
    pub(super) async fn is_over(&mut self) -> Result<bool, Cut> {
        while self.ahead().is_empty() {
            if !self.more().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next `length` bytes.
    pub(super) async fn take(&mut self, length: u64) -> Result<&[u8], Cut> {
        let length = match usize::try_from(length) {
            Ok(length) if length <= LARGEST => length,
            _ => return Err(Cut::TooLarge(length)),
        };
        while self.ahead().len() < length {
            if !self.more().await? {
                return Err(Cut::Short);
            }
        }
        let start = self.taken;
        self.taken += length;
        Ok(&self.buffer[start..self.taken])
    }

    /// Passes over the next `length` bytes.
    pub(super) async fn skip(&mut self, mut length: u64) -> Result<(), Cut> {
        loop {
            let here = length.min(self.ahead().len() as u64);
            length -= here;
            // No more than what is in the buffer.
            self.taken += here as usize;
            if length == 0 {
                return Ok(());
            }
            if !self.more().await? {
                return Err(Cut::Short);
            }
        }
    }

    /// The next number of protobuf, and how many bytes it took.
    pub(super) async fn varint(&mut self) -> Result<(u64, u64), Cut> {
        loop {
            match protobuf::varint(self.ahead()) {
                Ok((number, length)) => {
                    self.taken += length;
                    return Ok((number, length as u64));
                }
                Err(error) if self.ahead().len() >= LONGEST_VARINT => return Err(error.into()),
                Err(_) => {
                    if !self.more().await? {
                        return Err(Cut::Short);
                    }
                }
            }
        }
    }

    /// The next line, without its end; none after the last.
    pub(super) async fn line(&mut self) -> Result<Option<&[u8]>, Cut> {
        let mut searched = 0;
        loop {
            let ahead = self.ahead();
            let end = ahead[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.taken..self.taken + searched + end;
                self.taken = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            searched = ahead.len();
            if searched > LARGEST {
                return Err(Cut::TooLarge(searched as u64));
            }
            if !self.more().await? {
                let line = self.taken..self.buffer.len();
                self.taken = line.end;
                return Ok((!line.is_empty()).then(|| &self.buffer[line]));
            }
        }
    }

    /// The next event of a watch in protobuf, behind four bytes that say how
    /// long it is; none after the last.
    pub(super) async fn frame(&mut self) -> Result<Option<&[u8]>, Cut> {
        if self.is_over().await? {
            return Ok(None);
        }
        let mut length = 0;
        for byte in self.take(4).await? {
            length = length << 8 | u64::from(*byte);
        }
        self.take(length).await.map(Some)
    }

    /// All that is left, where that is not more than `most` bytes.
    pub(super) async fn rest(&mut self, most: usize) -> Result<&[u8], Cut> {
        while self.more().await? {
            if self.ahead().len() > most {
                return Err(Cut::TooLarge(self.ahead().len() as u64));
            }
        }
        Ok(self.ahead())
    }
}
