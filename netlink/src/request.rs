//! One message to the kernel, and what an error about it says.

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL,
    NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkSerializable,
};

use crate::error::{Cause, Error};
use crate::protocol::Protocol;

/// The flags of every request that makes an object.
const NEW: u16 = NLM_F_ACK | NLM_F_CREATE;

/// A message, its flags, and what an error about it should say.
#[must_use]
#[derive(Debug, Clone)]
pub struct Request<P: Protocol> {
    /// The operation, for errors: `create link`.
    pub operation: &'static str,
    /// The object of the operation, as a person would name it.
    pub object: String,
    pub(crate) message: P::Message,
    pub(crate) flags: u16,
}

impl<P: Protocol> Request<P> {
    pub(crate) fn new(
        operation: &'static str,
        object: String,
        message: P::Message,
        flags: u16,
    ) -> Self {
        Self {
            operation,
            object,
            message,
            flags,
        }
    }

    /// Creates the object; an error if it exists.
    pub(crate) fn create(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, NEW | NLM_F_EXCL)
    }

    /// Creates the object, or puts this one in the place of an existing one.
    pub(crate) fn replace(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, NEW | NLM_F_REPLACE)
    }

    /// Creates the object beside others of its kind that have the same key.
    pub(crate) fn append(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, NEW | NLM_F_APPEND)
    }

    /// Changes or deletes an existing object.
    pub(crate) fn change(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, NLM_F_ACK)
    }

    /// Asks for one object.
    pub(crate) fn get(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, 0)
    }

    /// Asks for all objects that match.
    pub(crate) fn dump(operation: &'static str, object: String, message: P::Message) -> Self {
        Self::new(operation, object, message, NLM_F_DUMP)
    }

    /// What it says, for tests.
    pub fn message(&self) -> &P::Message {
        &self.message
    }

    /// The error that `cause` makes of this request.
    pub(crate) fn failed(&self, cause: Cause) -> Error {
        Error::new(self.operation, &self.object, cause)
    }

    /// Appends the message's bytes to `buffer`.
    pub(crate) fn write(&self, sequence: u32, answer: Wanted, buffer: &mut Vec<u8>) {
        let mut header = NetlinkHeader::default();
        let body = header.buffer_len();
        let length = body + self.message.buffer_len();
        header.length = length as u32;
        header.message_type = self.message.message_type();
        header.flags = NLM_F_REQUEST
            | match answer {
                Wanted::Error => self.flags & !NLM_F_ACK,
                Wanted::Answer => self.flags,
                Wanted::Created => self.flags | NLM_F_ECHO,
            };
        header.sequence_number = sequence;
        let start = buffer.len();
        // The next message starts at a multiple of four: NLMSG_ALIGN.
        buffer.resize(start + length.next_multiple_of(4), 0);
        let message = &mut buffer[start..start + length];
        header.emit(message);
        self.message.serialize(&mut message[body..]);
    }
}

/// What the kernel is asked to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// An error only.
    Error,
    /// An acknowledgement, an error, or what was asked for.
    Answer,
    /// As [`Self::Answer`], and before it the object that was made.
    Created,
}
