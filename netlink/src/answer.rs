//! What the kernel answers: datagrams of messages, each an object or an end. Pure;
//! [`crate::socket`] and [`crate::monitor`] receive them.

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use nix::errno::Errno;

use crate::{error::Cause, protocol::Protocol};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Bytes of a message's header.
pub(crate) const NLMSG_HEADER: usize = 16;

/// One message of an answer.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The end: success, or the kernel's refusal. For a dump whose end says that changes
    /// interrupted it (`NLM_F_DUMP_INTR`), that is `EINTR`.
    End(Result<(), Cause>),
    /// An object, not decoded: most callers of a batch do not read it.
    Object {
        /// The message with its header, for [`decode_object`].
        message: &'a [u8],
        /// Whether changes interrupted the dump (`NLM_F_DUMP_INTR`).
        interrupted: bool,
    },
}

/// The messages of one datagram, each whole with its header.
///
/// # Errors
/// What is wrong, where the next message cannot be told apart: that is the last item.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<&[u8], String>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut rest);
        Some(match NetlinkBuffer::new_checked(whole) {
            Ok(message) => {
                let length = message.length() as usize;
                rest = whole.get(length.next_multiple_of(4)..).unwrap_or(&[]);
                Ok(&whole[..length])
            }
            Err(error) => Err(error.to_string()),
        })
    })
}

/// Reads one of the [`messages`].
pub fn decode(bytes: &[u8]) -> Answer<'_> {
    let message = NetlinkBuffer::new(bytes);
    match message.message_type() {
        NLMSG_ERROR | NLMSG_DONE => Answer::End(decode_end(&message)),
        _ => Answer::Object {
            message: bytes,
            interrupted: message.flags() & NLM_F_DUMP_INTR != 0,
        },
    }
}

/// The object that a message carries.
///
/// # Errors
/// What is wrong with it, as text.
pub fn decode_object<P: Protocol>(message: &[u8]) -> Result<P::Message, String> {
    match NetlinkMessage::<P::Message>::deserialize(&P::decodable(message)) {
        Ok(NetlinkMessage {
            payload: NetlinkPayload::InnerMessage(object),
            ..
        }) => Ok(object),
        Ok(_) => Err(format!("not an object of {}", P::NAME)),
        Err(error) => Err(error.to_string()),
    }
}

/// `NLMSG_ERROR` and `NLMSG_DONE` start with a negative error number, 0 for
/// success (netlink(7)); an error then repeats the request's header and, with
/// `NLM_F_ACK_TLVS`, adds attributes (`include/uapi/linux/netlink.h`).
fn decode_end(message: &NetlinkBuffer<&[u8]>) -> Result<(), Cause> {
    let payload = message.payload();
    let code = payload
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes))
        .or_else(|| (message.message_type() == NLMSG_DONE).then_some(0))
        .ok_or_else(|| Cause::Undecodable("an error message without an error".to_owned()))?;
    // A change after the last object was written: only the end of the dump says so.
    let is_interrupted =
        message.message_type() == NLMSG_DONE && message.flags() & NLM_F_DUMP_INTR != 0;
    if code >= 0 && is_interrupted {
        return Err(Cause::Kernel {
            errno: Errno::EINTR,
            message: None,
        });
    }
    if code >= 0 {
        return Ok(());
    }
    let attributes_at = match message.message_type() {
        NLMSG_ERROR => 4 + NLMSG_HEADER,
        _ => 4,
    };
    let text = (message.flags() & NLM_F_ACK_TLVS != 0)
        .then(|| payload.get(attributes_at..))
        .flatten()
        .and_then(error_text);
    Err(Cause::Kernel {
        errno: Errno::from_raw(code.saturating_neg()),
        message: text,
    })
}

fn error_text(mut attributes: &[u8]) -> Option<String> {
    while let Some((header, _)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let value = attributes.get(4..length)?;
        if kind == NLMSGERR_ATTR_MSG {
            let text = value.split(|byte| *byte == 0).next()?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((16 + payload.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn an_error_carries_the_kernels_words() {
        let mut payload = (-17i32).to_ne_bytes().to_vec();
        payload.extend([0; 16]);
        payload.extend(9u16.to_ne_bytes());
        payload.extend(1u16.to_ne_bytes());
        payload.extend(b"busy\0\0\0\0");
        let bytes = message(NLMSG_ERROR, NLM_F_ACK_TLVS, &payload);
        let buffer = NetlinkBuffer::new(&bytes[..]);
        let Err(Cause::Kernel { errno, message }) = decode_end(&buffer) else {
            panic!("not an error");
        };
        assert_eq!(errno, Errno::EEXIST);
        assert_eq!(message.as_deref(), Some("busy"));
    }

    #[test]
    fn broken_answers_are_errors_and_never_panics() {
        for length in 0..40 {
            for fill in [0u8, 1, 4, 16, 255] {
                let bytes = vec![fill; length];
                for item in messages(&bytes) {
                    let Ok(item) = item else { break };
                    let _ = decode(item);
                }
            }
        }
        let whole = message(NLMSG_ERROR, NLM_F_ACK_TLVS, &[0xff; 30]);
        for cut in 0..whole.len() {
            for item in messages(&whole[..cut]).flatten() {
                let _ = decode(item);
            }
        }
    }

    #[test]
    fn a_datagram_of_two_messages_gives_both() {
        let mut bytes = message(NLMSG_DONE, 0, &0i32.to_ne_bytes());
        bytes.extend(message(NLMSG_ERROR, 0, &[0; 20]));
        assert_eq!(messages(&bytes).filter(Result::is_ok).count(), 2);
    }
}
