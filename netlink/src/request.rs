//! One message to the kernel, with the words for its error.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;

/// A message, its flags, and what an error about it should say.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it does: `create link`.
    pub operation: &'static str,
    /// To what.
    pub object: String,
    pub(crate) message: RouteNetlinkMessage,
    pub(crate) flags: u16,
}

impl Request {
    fn new(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
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
    pub(crate) fn create(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
    ) -> Self {
        Self::new(
            operation,
            object,
            message,
            NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Creates the object, or puts this one in the place of an existing one.
    pub(crate) fn replace(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
    ) -> Self {
        Self::new(
            operation,
            object,
            message,
            NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Changes or deletes an existing object.
    pub(crate) fn change(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
    ) -> Self {
        Self::new(operation, object, message, NLM_F_ACK)
    }

    /// Asks for one object.
    pub(crate) fn get(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
    ) -> Self {
        Self::new(operation, object, message, 0)
    }

    /// Asks for all objects that match.
    pub(crate) fn dump(
        operation: &'static str,
        object: String,
        message: RouteNetlinkMessage,
    ) -> Self {
        Self::new(operation, object, message, NLM_F_DUMP)
    }

    /// The same, with the object that it makes for an answer.
    pub(crate) fn echoed(&self) -> Self {
        Self {
            flags: self.flags | NLM_F_ECHO,
            ..self.clone()
        }
    }

    /// Appends the message's bytes to `buffer`. Without `acknowledge` only a
    /// refusal is answered.
    pub(crate) fn write(&self, sequence: u32, acknowledge: bool, buffer: &mut Vec<u8>) {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | self.flags;
        if !acknowledge {
            header.flags &= !NLM_F_ACK;
        }
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(self.message.clone()));
        message.finalize();
        let start = buffer.len();
        // The next message starts at a multiple of four: NLMSG_ALIGN.
        buffer.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut buffer[start..]);
    }
}
