//! Messages of protobuf, written field by field.

/// A message under construction.
#[derive(Clone, Default)]
pub(super) struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub(super) fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(super) fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn message(self, field: u64, value: Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Eight and four bytes of fixed size.
    pub(super) fn fixed(mut self, field: u64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend([7; 8]);
        self.varint(field << 3 | 5);
        self.0.extend([7; 4]);
        self
    }
}
