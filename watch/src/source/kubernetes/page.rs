//! A page of a list in protobuf, decoded while it comes in: at no time is more
//! than one object of it held.

use super::incoming::{Cut, Incoming};
use super::protobuf::{self, MAGIC, Malformed, field, key, wire_type};

/// What comes out of a page.
pub(super) enum Part<'a> {
    /// The list's version, and what to ask for the next page with.
    Metadata(Option<String>, Option<String>),
    /// A Node, to be decoded.
    Object(&'a [u8]),
}

/// A page that comes in.
pub(super) struct Page<'a> {
    body: &'a mut Incoming,
    /// So many bytes of the list are left; none before it has begun.
    left: Option<u64>,
}

impl<'a> Page<'a> {
    pub(super) fn new(body: &'a mut Incoming) -> Self {
        Self { body, left: None }
    }

    /// The next part; none when the page is whole.
    pub(super) async fn next(&mut self) -> Result<Option<Part<'_>>, Cut> {
        let mut left = match self.left {
            Some(left) => left,
            None => self.begin().await?,
        };
        while left > 0 {
            let (tag, length) = self.body.varint().await?;
            left = within(left, length)?;
            let (number, kind) = key(tag);
            if kind != wire_type::LENGTH_DELIMITED {
                let size = self.pass_over(kind).await?;
                left = within(left, size)?;
                continue;
            }
            let (size, length) = self.body.varint().await?;
            left = within(within(left, length)?, size)?;
            match number {
                field::LIST_METADATA => {
                    self.left = Some(left);
                    let metadata = self.body.take(size).await?;
                    let (version, go_on) = protobuf::list_metadata(metadata)?;
                    return Ok(Some(Part::Metadata(version, go_on)));
                }
                field::LIST_ITEMS => {
                    self.left = Some(left);
                    return self.body.take(size).await.map(Part::Object).map(Some);
                }
                _ => self.body.skip(size).await?,
            }
        }
        self.left = Some(0);
        // What follows the list in its envelope says nothing; all of it is
        // read, so that the connection can serve again.
        while !self.body.is_over().await? {
            self.body.skip(1).await?;
        }
        Ok(None)
    }

    /// Goes to the list inside its envelope; gives its length.
    async fn begin(&mut self) -> Result<u64, Cut> {
        if self.body.take(MAGIC.len() as u64).await? != MAGIC {
            return Err(Malformed::Magic.into());
        }
        loop {
            let (number, kind) = key(self.body.varint().await?.0);
            if kind != wire_type::LENGTH_DELIMITED {
                self.pass_over(kind).await?;
                continue;
            }
            let (size, _) = self.body.varint().await?;
            if number == field::UNKNOWN_RAW {
                return Ok(size);
            }
            self.body.skip(size).await?;
        }
    }

    /// Passes over a value that has no length before it; gives its size.
    async fn pass_over(&mut self, kind: u64) -> Result<u64, Cut> {
        let size = match kind {
            wire_type::VARINT => return Ok(self.body.varint().await?.1),
            wire_type::FIXED_64 => 8,
            wire_type::FIXED_32 => 4,
            other => return Err(Malformed::WireType(other).into()),
        };
        self.body.skip(size).await?;
        Ok(size)
    }
}

fn within(left: u64, size: u64) -> Result<u64, Cut> {
    left.checked_sub(size)
        .ok_or(Cut::Malformed(Malformed::Length))
}
