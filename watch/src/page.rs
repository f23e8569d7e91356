//! A page of a list in protobuf, read while it arrives: at most one of its
//! objects is held at a time.

use prost::Message as _;

use crate::client::body::{Body, BodyError};
use crate::protobuf::{ListMetadata, MAGIC, Malformed};

/// The wire types of protobuf.
mod wire_type {
    pub const VARINT: u64 = 0;
    pub const FIXED_64: u64 = 1;
    pub const LENGTH_DELIMITED: u64 = 2;
    pub const FIXED_32: u64 = 5;
}

/// Field number of `runtime.Unknown.raw`, the list inside its envelope.
const UNKNOWN_RAW: u64 = 2;
/// Field number of `metadata` in a list of any kind.
const LIST_METADATA: u64 = 1;
/// Field number of `items` in a list of any kind.
const LIST_ITEMS: u64 = 2;

/// An element of a page.
pub(crate) enum Element<'a> {
    Metadata(ListMetadata),
    /// An object, to be decoded.
    Object(&'a [u8]),
}

/// A page that arrives.
pub(crate) struct Page<'a> {
    body: &'a mut Body,
    /// Bytes of the list that are not read yet; `None` before it has begun.
    left: Option<u64>,
}

impl<'a> Page<'a> {
    pub(crate) fn new(body: &'a mut Body) -> Self {
        Self { body, left: None }
    }

    /// The next element; `None` at the end of the page.
    pub(crate) async fn next(&mut self) -> Result<Option<Element<'_>>, BodyError> {
        let mut left = match self.left {
            Some(left) => left,
            None => self.begin().await?,
        };
        while left > 0 {
            let (tag, length) = self.body.varint().await?;
            left = subtract(left, length)?;
            let (number, wire_type) = key(tag);
            if wire_type != wire_type::LENGTH_DELIMITED {
                let size = self.skip_scalar(wire_type).await?;
                left = subtract(left, size)?;
                continue;
            }
            let (size, length) = self.body.varint().await?;
            left = subtract(subtract(left, length)?, size)?;
            self.left = Some(left);
            match number {
                LIST_METADATA => {
                    let metadata = ListMetadata::decode(self.body.take(size).await?);
                    return Ok(Some(Element::Metadata(metadata.map_err(Malformed::from)?)));
                }
                LIST_ITEMS => return self.body.take(size).await.map(Element::Object).map(Some),
                _ => self.body.skip(size).await?,
            }
        }
        self.left = Some(0);
        // The fields after the list in its envelope have no meaning here; they
        // are read so that the connection can be used again.
        while !self.body.is_at_end().await? {
            self.body.skip(1).await?;
        }
        Ok(None)
    }

    /// Reads up to the list inside its envelope; returns the list's length.
    async fn begin(&mut self) -> Result<u64, BodyError> {
        if self.body.take(MAGIC.len() as u64).await? != MAGIC {
            return Err(Malformed::Magic.into());
        }
        loop {
            let (number, wire_type) = key(self.body.varint().await?.0);
            if wire_type != wire_type::LENGTH_DELIMITED {
                self.skip_scalar(wire_type).await?;
                continue;
            }
            let (size, _) = self.body.varint().await?;
            if number == UNKNOWN_RAW {
                return Ok(size);
            }
            self.body.skip(size).await?;
        }
    }

    /// Skips a value that has no length before it; returns its size.
    async fn skip_scalar(&mut self, wire_type: u64) -> Result<u64, BodyError> {
        let size = match wire_type {
            wire_type::VARINT => return Ok(self.body.varint().await?.1),
            wire_type::FIXED_64 => 8,
            wire_type::FIXED_32 => 4,
            other => return Err(Malformed::WireType(other).into()),
        };
        self.body.skip(size).await?;
        Ok(size)
    }
}

/// The key of a field: its number and its wire type.
fn key(tag: u64) -> (u64, u64) {
    (tag >> 3, tag & 7)
}

fn subtract(left: u64, size: u64) -> Result<u64, BodyError> {
    left.checked_sub(size)
        .ok_or(BodyError::Malformed(Malformed::Length))
}
