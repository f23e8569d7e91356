//! Attributes as nf_tables has them: a length, a kind, a payload, padded to four
//! bytes; numbers in network byte order (`linux/netlink.h`).

use std::iter;

/// Bytes of a length and a kind.
const HEADER: usize = 4;
/// The two upper bits of a kind are flags (nested, byte order).
const KIND_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// Attributes one after the other.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// No attribute.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds raw bytes. More than 65,531 of them do not fit: the length is then
    /// cut off, and the kernel refuses the message.
    pub fn bytes(self, kind: u16, payload: &[u8]) -> Self {
        self.written(kind, |bytes| bytes.extend_from_slice(payload))
    }

    /// Adds an attribute with the payload that `write` appends.
    pub fn written(mut self, kind: u16, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let start = self.begin(kind);
        write(&mut self.0);
        self.end(start);
        self
    }

    /// Adds attributes within an attribute, which `inner` appends: without an allocation for
    /// each, which counts where elements are written by the hundred thousand.
    pub fn nest(mut self, kind: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let start = self.begin(kind | NESTED);
        let mut all = inner(self);
        all.end(start);
        all
    }

    /// Writes a header whose length is not known yet, and says where it is.
    fn begin(&mut self, kind: u16) -> usize {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// Enters the length into the header at `start`.
    fn end(&mut self, start: usize) {
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds text with its closing zero byte.
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.written(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        })
    }

    /// Adds a number.
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds attributes within an attribute.
    pub fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }

    /// As they are sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Attributes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Kind and payload of each attribute, up to one whose length cannot be.
pub fn each(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    iter::from_fn(move || {
        let (header, _) = rest.split_first_chunk::<HEADER>()?;
        let [length_low, length_high, kind_low, kind_high] = *header;
        let length = usize::from(u16::from_ne_bytes([length_low, length_high]));
        let payload = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([kind_low, kind_high]);
        Some((kind & KIND_MASK, payload))
    })
}

/// The payload of the first attribute of this kind.
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    each(bytes).find_map(|(found, payload)| (found == kind).then_some(payload))
}

/// A payload as text, without its closing zero byte.
pub fn text(payload: &[u8]) -> Option<&str> {
    let end = payload.iter().position(|byte| *byte == 0);
    std::str::from_utf8(payload.get(..end.unwrap_or(payload.len()))?).ok()
}

/// A payload as a number.
pub fn number(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let inner = Attributes::new().number(2, 7);
        let named = || Attributes::new().text(1, "tweed");
        let written = named().nested(3, &inner);
        let nested = named().nest(3, |all| all.number(2, 7));
        assert_eq!(nested, written);
        let read = written.as_bytes();
        assert_eq!(find(read, 1).and_then(text), Some("tweed"));
        let nested = find(read, 3).unwrap();
        assert_eq!(find(nested, 2).and_then(number), Some(7));
        assert_eq!(find(read, 2), None);
    }

    /// With bytes and not with what reads them, which could make the same mistake.
    #[test]
    fn headers_have_the_order_of_the_machine_and_numbers_that_of_the_network() {
        let written = Attributes::new().number(2, 0x0102_0304);
        let header = if cfg!(target_endian = "big") {
            [0, 8, 0, 2]
        } else {
            [8, 0, 2, 0]
        };
        assert_eq!(written.as_bytes(), [header, [1, 2, 3, 4]].concat());
    }

    #[test]
    fn attributes_end_before_a_length_that_cannot_be() {
        let header = |length: u16| [length.to_ne_bytes(), 1u16.to_ne_bytes()].concat();
        let too_long = [header(9), vec![0; 4]].concat();
        assert_eq!(each(&header(3)).count(), 0);
        assert_eq!(each(&too_long).count(), 0);
        let mut bytes = Attributes::new().number(1, 1).as_bytes().to_vec();
        bytes.extend(too_long);
        assert_eq!(each(&bytes).count(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_from_the_kernel_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for (_, payload) in each(&bytes) {
                let _ = text(payload);
                let _ = number(payload);
            }
        }
    }
}
