//! What the registers of a rule hold. Pure. A concatenation is loaded part by part, each
//! behind the one before, and then looked up as one value.

use std::collections::BTreeMap;

use super::packet::Value;

/// Bytes of a register, by its old numbers from 1 on, and by its new ones from
/// `NFT_REG32_00` on, which name the same bytes.
const LONG: u32 = 16;
const SHORT: u32 = 4;
const FIRST_SHORT: u32 = 8;

/// The registers, by the place of their first byte.
#[derive(Default)]
pub(super) struct Registers(BTreeMap<u32, Value>);

impl Registers {
    /// What was loaded behind it before is of another concatenation: it may have been
    /// overwritten, since of a value that is not known the length is not known either.
    pub(super) fn set(&mut self, register: u32, value: Value) {
        let place = place(register);
        self.0.split_off(&place);
        self.0.insert(place, value);
    }

    /// What was loaded into this register.
    pub(super) fn get(&self, register: u32) -> Value {
        let value = self.0.get(&place(register));
        value.cloned().unwrap_or(Value::Unknown)
    }

    /// So many bytes from this register on; none if that is the register itself.
    pub(super) fn joined(&self, register: u32, length: usize) -> Option<Value> {
        let first = place(register);
        let end = first.saturating_add(u32::try_from(length).ok()?);
        let mut parts = self.0.range(first..end).peekable();
        let mut bytes = Vec::new();
        while let Some((at, value)) = parts.next() {
            let behind = parts.peek().map_or(end, |(next, _)| **next);
            let room = usize::try_from(behind - at).ok()?;
            bytes.extend(padded(value, room));
        }
        let is_one = self.0.range(first..end).count() < 2;
        if is_one || bytes.len() != length {
            return None;
        }
        Some(match bytes.iter().copied().collect() {
            Some(known) => Value::Known(known),
            None => Value::Partly(bytes),
        })
    }
}

/// A part of so many bytes: what is behind a known value is zero.
fn padded(value: &Value, room: usize) -> Vec<Option<u8>> {
    let mut bytes: Vec<Option<u8>> = match value {
        Value::Known(known) => known.iter().copied().map(Some).collect(),
        Value::Partly(bytes) => bytes.clone(),
        Value::Not(_) | Value::Flow | Value::Unknown => return vec![None; room],
    };
    bytes.resize(room, Some(0));
    bytes
}

fn place(register: u32) -> u32 {
    match register.checked_sub(FIRST_SHORT) {
        Some(number) => number.saturating_mul(SHORT),
        None => register.saturating_sub(1).saturating_mul(LONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_with_what_is_between_them() {
        let mut registers = Registers::default();
        registers.set(1, Value::Known(vec![17]));
        registers.set(9, Value::Known(vec![0x21, 0x18]));
        let joined = |registers: &Registers, length| match registers.joined(1, length) {
            Some(Value::Known(bytes)) => bytes.into_iter().map(Some).collect(),
            Some(Value::Partly(bytes)) => bytes,
            _ => Vec::new(),
        };
        let whole = [17, 0, 0, 0, 0x21, 0x18, 0, 0].map(Some);
        assert_eq!(joined(&registers, 8), whole);
        assert_eq!(joined(&registers, 4), [], "one part");
        // The same bytes under their other number, then the next part.
        registers.set(8, Value::Unknown);
        assert_eq!(joined(&registers, 8), [], "of the concatenation before");
        registers.set(9, Value::Known(vec![0x21, 0x18]));
        let partly = [[None; 4], [Some(0x21), Some(0x18), Some(0), Some(0)]].concat();
        assert_eq!(joined(&registers, 8), partly);
    }
}
