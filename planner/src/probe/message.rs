//! What probes carry. Agents of neighbouring versions understand each other, so this is part
//! of the contract between nodes: 40 bytes, then zeros up to the size of the probe.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The size of a message, in bytes.
pub const SIZE: usize = 40;
const MAGIC: [u8; 4] = *b"twP1";
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// Says that nothing was heard.
const NEVER: u16 = u16::MAX;

/// A probe's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Whether it answers another one.
    pub is_answer: bool,
    /// A number that the asking agent drew at its start.
    pub nonce: u64,
    /// The number of the probe.
    pub id: u64,
    /// The first address of the asking node's pod CIDR of the family that it asks about.
    pub address: IpAddr,
    /// In an answer: how long ago a probe from that address has come over the way of pods'
    /// packets. In whole seconds, and none beyond 18 hours.
    pub heard: Option<Duration>,
}

impl Message {
    /// The bytes of the message, with zeros up to `size`.
    pub fn encode(&self, size: usize) -> Vec<u8> {
        let heard = self.heard.and_then(|age| u16::try_from(age.as_secs()).ok());
        let address = match self.address {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = Vec::with_capacity(size.max(SIZE));
        bytes.extend(MAGIC);
        bytes.extend([if self.is_answer { ANSWER } else { REQUEST }, 0]);
        bytes.extend(heard.unwrap_or(NEVER).to_be_bytes());
        bytes.extend(self.nonce.to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(address.octets());
        bytes.resize(size.max(SIZE), 0);
        bytes
    }

    /// Reads a message; none if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let address = Ipv6Addr::from(*rest.first_chunk::<16>()?);
        let [kind, _, high, low] = head.strip_prefix(&MAGIC)?.first_chunk::<4>().copied()?;
        let heard = u16::from_be_bytes([high, low]);
        let is_answer = match kind {
            REQUEST => false,
            ANSWER => true,
            _ => return None,
        };
        Some(Self {
            is_answer,
            nonce: u64::from_be_bytes(*nonce),
            id: u64::from_be_bytes(*id),
            address: address.to_canonical(),
            heard: (heard != NEVER).then(|| Duration::from_secs(heard.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_has_a_form_that_other_versions_know() {
        let message = Message {
            is_answer: true,
            nonce: 0x0102_0304_0506_0708,
            id: 9,
            address: "10.244.1.0".parse().unwrap(),
            heard: Some(Duration::from_millis(3900)),
        };
        let mut expected =
            b"twP1\x02\0\0\x03\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\x09".to_vec();
        expected.extend([
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 244, 1, 0, 0, 0,
        ]);
        assert_eq!(message.encode(42), expected);
        assert_eq!(message.encode(0).len(), SIZE);
        let later = Message {
            heard: Some(Duration::from_hours(20)),
            ..message
        };
        assert_eq!(Message::decode(&later.encode(0)).unwrap().heard, None);
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            (is_answer, nonce, id) in any::<(bool, u64, u64)>(),
            address in any::<IpAddr>(),
            seconds in proptest::option::of(0..u64::from(NEVER)),
            size in 0..2000usize,
        ) {
            let address = address.to_canonical();
            let heard = seconds.map(Duration::from_secs);
            let message = Message { is_answer, nonce, id, address, heard };
            prop_assert_eq!(Message::decode(&message.encode(size)), Some(message));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Message::decode(&bytes);
            let _ = Message::decode(&[&MAGIC[..], &bytes].concat());
        }
    }
}
