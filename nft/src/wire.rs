//! nfnetlink messages as bytes: only the framing. What the attributes mean
//! stands with those who use them.
//!
//! Source of the layout: `linux/netlink.h`, `linux/netfilter/nfnetlink.h`.

/// Error or acknowledgement.
pub(super) const NLMSG_ERROR: u16 = 2;
/// End of a dump.
pub(super) const NLMSG_DONE: u16 = 3;
/// The receiver's buffer ran over.
pub(super) const NLMSG_OVERRUN: u16 = 4;

/// A request to the kernel.
pub(super) const NLM_F_REQUEST: u16 = 0x001;
/// Answer also when all is well.
pub(super) const NLM_F_ACK: u16 = 0x004;
/// What was dumped changed meanwhile.
pub(super) const NLM_F_DUMP_INTR: u16 = 0x010;
/// Answer with every object of the kind.
pub(super) const NLM_F_DUMP: u16 = 0x300;
/// Make the object where it is missing.
pub(super) const NLM_F_CREATE: u16 = 0x400;

/// Opens a transaction.
pub(super) const BATCH_BEGIN: u16 = 16;
/// Ends a transaction.
pub(super) const BATCH_END: u16 = 17;

/// nf_tables' number among the subsystems of nfnetlink.
pub(super) const SUBSYSTEM: u16 = 10;

/// `NFPROTO_UNSPEC`: every family.
pub(super) const FAMILY_ANY: u8 = 0;
/// `NFPROTO_INET`: IPv4 and IPv6 in one.
pub(super) const FAMILY_INET: u8 = 1;
/// `NFPROTO_IPV4`.
pub(super) const FAMILY_IPV4: u8 = 2;
/// `NFPROTO_IPV6`.
pub(super) const FAMILY_IPV6: u8 = 10;

const HEADER: usize = 16;
const NFGENMSG: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// The two upper bits of an attribute's kind are flags (nested, byte order).
const KIND_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// The type of an nf_tables message as the header carries it.
pub(super) const fn nf_tables(message: u8) -> u16 {
    SUBSYSTEM << 8 | message as u16
}

/// Attributes under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// No attribute.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds raw bytes. More than 65,531 of them do not fit: the length is then
    /// cut off, and the kernel refuses the message.
    pub(super) fn bytes(mut self, kind: u16, payload: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + payload.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(payload);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds text with its closing zero byte.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        let mut payload = value.as_bytes().to_vec();
        payload.push(0);
        self.bytes(kind, &payload)
    }

    /// Adds a number in network byte order, as nf_tables has them.
    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds attributes within an attribute.
    pub(super) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }
}

/// One message with its header; `kind` as the header has it.
pub(super) fn message(
    kind: u16,
    flags: u16,
    sequence: u32,
    family: u8,
    resource: u16,
    attributes: &Attributes,
) -> Vec<u8> {
    let length = HEADER + NFGENMSG + attributes.0.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[family, 0]);
    bytes.extend_from_slice(&resource.to_be_bytes());
    bytes.extend_from_slice(&attributes.0);
    bytes
}

/// A received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received<'a> {
    /// Type of the message.
    pub(super) kind: u16,
    /// `NLM_F_…`.
    pub(super) flags: u16,
    /// The request that it answers.
    pub(super) sequence: u32,
    /// Port of the socket that asked for it, or that caused it.
    pub(super) port: u32,
    /// What follows the header.
    pub(super) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// The number of the error (positive), 0 for an acknowledgement; of an
    /// error message or the end of a dump.
    pub(super) fn errno(&self) -> Option<i32> {
        let (code, _) = self.body.split_first_chunk::<4>()?;
        i32::from_ne_bytes(*code).checked_neg()
    }

    /// Family and attributes of an nfnetlink message.
    pub(super) fn family_and_attributes(&self) -> Option<(u8, &'a [u8])> {
        let (head, attributes) = self.body.split_first_chunk::<NFGENMSG>()?;
        Some((head[0], attributes))
    }
}

/// The messages of one datagram; none if a length in it cannot be.
pub(super) fn messages(datagram: &[u8]) -> Option<Vec<Received<'_>>> {
    let mut rest = datagram;
    let mut messages = Vec::new();
    while rest.len() >= HEADER {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let body = rest.get(HEADER..length)?;
        messages.push(Received {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            port: u32_at(rest, 12)?,
            body,
        });
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(messages)
}

/// Kind and payload of each attribute; none if a length in it cannot be.
pub(super) fn attributes(bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while rest.len() >= ATTRIBUTE_HEADER {
        let length = usize::from(u16_at(rest, 0)?);
        let payload = rest.get(ATTRIBUTE_HEADER..length)?;
        found.push((u16_at(rest, 2)? & KIND_MASK, payload));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

/// The payload of the first attribute of `kind`.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)?
        .into_iter()
        .find_map(|(found, payload)| (found == kind).then_some(payload))
}

/// Text without its closing zero byte.
pub(super) fn text(payload: &[u8]) -> Option<&str> {
    let end = payload.iter().position(|b| *b == 0);
    std::str::from_utf8(&payload[..end.unwrap_or(payload.len())]).ok()
}

/// A number in network byte order.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let inner = Attributes::new().number(2, 7);
        let written = Attributes::new().text(1, "tweed").nested(3, &inner);
        let bytes = message(nf_tables(3), NLM_F_ACK, 9, FAMILY_INET, 0, &written);
        let all = messages(&bytes).unwrap();
        let [one] = all[..] else {
            panic!("{all:?}");
        };
        assert_eq!((one.kind, one.sequence), (0x0a03, 9));
        let (family, read) = one.family_and_attributes().unwrap();
        assert_eq!(family, FAMILY_INET);
        assert_eq!(attribute(read, 1).and_then(text), Some("tweed"));
        let nested = attribute(read, 3).unwrap();
        assert_eq!(attribute(nested, 2).and_then(number), Some(7));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let bytes = message(nf_tables(3), 0, 1, FAMILY_INET, 0, &Attributes::new());
        for length in [0u32, 15, 21, u32::MAX] {
            let mut bad = bytes.clone();
            bad[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&bad), None, "{length}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]), None);
        assert_eq!(attributes(&[9, 0, 1, 0, 0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_from_the_kernel_bring_the_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for received in messages(&bytes).unwrap_or_default() {
                received.errno();
                received.family_and_attributes();
            }
            attributes(&bytes);
        }
    }
}
