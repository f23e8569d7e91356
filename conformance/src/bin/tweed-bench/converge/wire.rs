//! Writing protobuf by hand: enough for a Node, a list and a watch.
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

fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
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
