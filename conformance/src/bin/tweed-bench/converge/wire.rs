//! Protobuf by hand: writing enough for a Node, a list and a watch, and reading
//! what happened to which Node.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto` and
//! `k8s.io/apimachinery/pkg/{apis/meta/v1,runtime}/generated.proto`. Written
//! apart from the agent's reader on purpose: a number that is wrong in one of
//! the two shows as a Node that is not understood.

/// What every protobuf object of the API starts with.
const MAGIC: &[u8] = b"k8s\0";

const LENGTH_DELIMITED: u64 = 2;

/// A message under construction.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// A field that is a number.
    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// A field that is text.
    pub fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// A field that is a message itself.
    pub fn message(self, field: u64, value: Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// An entry of a map from text to text.
    pub fn entry(self, field: u64, key: &str, value: &str) -> Self {
        self.message(field, Self::default().text(1, key).text(2, value))
    }

    /// A field of bytes.
    pub fn bytes(self, field: u64, value: &[u8]) -> Self {
        let mut message = self.length(field, value.len());
        message.0.extend_from_slice(value);
        message
    }

    fn length(mut self, field: u64, length: usize) -> Self {
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(length as u64);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The message alone.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// What stands before a field of so many bytes.
pub fn header(field: u64, length: usize) -> Vec<u8> {
    Message::default().length(field, length).0
}

/// What stands before and behind an object of so many bytes as the API sends
/// it: magic, then a `runtime.Unknown` around it.
pub fn around(kind: &str, length: usize) -> (Vec<u8>, Vec<u8>) {
    let type_meta = Message::default().text(1, "v1").text(2, kind);
    let before = Message::default().message(1, type_meta).length(2, length);
    let behind = Message::default().text(3, "").text(4, "");
    ([MAGIC, &before.0].concat(), behind.0)
}

/// An object as the API sends and takes it.
pub fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
    let (before, behind) = around(kind, object.len());
    [&before, object, &behind].concat()
}

/// An event of a watch: its length as four bytes, then a `WatchEvent` around
/// the object in its envelope.
pub fn watch_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let raw = Message::default().bytes(1, &envelope("Node", object));
    let event = Message::default().text(1, kind).message(2, raw);
    let length = event.0.len() as u32;
    [&length.to_be_bytes(), event.0.as_slice()].concat()
}

/// What an event of a watch says: its type, and the name of its Node.
pub fn read_event(event: &[u8]) -> Option<(&str, &str)> {
    let raw = bytes_in(bytes_in(event, 2)?, 1)?;
    let node = bytes_in(raw.strip_prefix(MAGIC)?, 2)?;
    let name = bytes_in(bytes_in(node, 1)?, 1)?;
    let kind = bytes_in(event, 1)?;
    Some((str::from_utf8(kind).ok()?, str::from_utf8(name).ok()?))
}

/// What to ask for the rest of a list with; none if it is whole.
pub fn read_continue(list: &[u8]) -> Option<&str> {
    let metadata = bytes_in(bytes_in(list.strip_prefix(MAGIC)?, 2)?, 1)?;
    let token = str::from_utf8(bytes_in(metadata, 3)?).ok()?;
    (!token.is_empty()).then_some(token)
}

/// The first field of this number in a message: text, bytes, or a message.
fn bytes_in(mut message: &[u8], field: u64) -> Option<&[u8]> {
    loop {
        let key = take_varint(&mut message)?;
        let length = match key & 7 {
            LENGTH_DELIMITED => take_varint(&mut message)?,
            // A number has no length before it.
            0 => take_varint(&mut message).map(|_| 0)?,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
        if key == field << 3 | LENGTH_DELIMITED {
            return Some(value);
        }
        message = rest;
    }
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_to_go_on_with() {
        for (token, go_on) in [("", None), ("abc", Some("abc"))] {
            let metadata = Message::default().text(2, "300").text(3, token);
            let list = Message::default().message(1, metadata).into_bytes();
            assert_eq!(read_continue(&envelope("NodeList", &list)), go_on);
        }
    }

    #[test]
    fn an_event_says_what_happened_to_which_node() {
        let metadata = Message::default().number(7, 300).text(1, "worker");
        let node = Message::default().message(1, metadata).into_bytes();
        let frame = watch_frame("DELETED", &node);
        let event = &frame[4..];
        assert_eq!(read_event(event), Some(("DELETED", "worker")));
        // Wherever it is cut off, it is no event.
        for length in 0..event.len() {
            assert_eq!(read_event(&event[..length]), None, "{length}");
        }
    }
}
