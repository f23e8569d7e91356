//! The synchronous socket for every netlink protocol.
//!
//! It asks the kernel for strict checking and extended answers, waits for a limited
//! time, and repeats dumps that changes have interrupted. It is connected to the
//! kernel: a message from any other sender is refused by the kernel itself
//! (`netlink_getsockbyportid`), so what is received is the kernel's.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NetlinkBuffer, NetlinkDeserializable, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::SocketAddr;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::TimeVal;

use crate::error::{Cause, Error};
use crate::netns;
use crate::request::{Request, Wanted};

/// Maximum number of requests in one system call: if the kernel refuses all of
/// them, the answers, each about 800 bytes of the kernel's accounting, fit in the
/// default receive buffer of 208 KiB.
const BATCH: usize = 128;
/// Maximum number of tries for a dump that changes interrupt.
const DUMP_TRIES: u32 = 20;
/// Maximum time for an answer. The kernel answers within the system call that
/// sends the request, except while others hold its lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Size of the receive buffer in bytes: the kernel puts at most 32 KiB into one
/// datagram of a dump or of notifications.
pub(crate) const RECEIVE_BUFFER: usize = 64 * 1024;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSG_HEADER: usize = 16;

/// A protocol of netlink: which socket to open, and what its messages are.
pub trait Protocol: Debug + Clone + 'static {
    /// Its number: `NETLINK_…` of `linux/netlink.h`.
    const NUMBER: isize;
    /// Its name, for errors.
    const NAME: &'static str;
    /// The content of requests, answers and notifications.
    type Message: NetlinkSerializable + NetlinkDeserializable + Debug + Clone;
}

/// A connection to the kernel's side of a protocol in one network namespace.
#[derive(Debug)]
pub struct Socket<P: Protocol> {
    inner: netlink_sys::Socket,
    sequence: u32,
    received: Vec<u8>,
    changes_sent: u64,
    protocol: PhantomData<P>,
}

/// One message of an answer.
pub(crate) enum Answer<'a> {
    /// The end: success, or the kernel's refusal.
    End(Result<(), Cause>),
    /// An object, not decoded: most callers of a batch do not read it.
    Object {
        message: &'a [u8],
        interrupted: bool,
    },
}

impl<P: Protocol> Socket<P> {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket, or one without strict checking
    /// (before Linux 4.20).
    pub fn open() -> Result<Self, Error> {
        Self::connect()
            .map_err(|error| Error::new("open", format!("the {} socket", P::NAME), error.into()))
    }

    /// Opens a socket in another network namespace. It stays there, whatever
    /// the thread does later.
    ///
    /// # Errors
    /// As [`Socket::open`], and when the namespace cannot be entered.
    pub fn open_in(namespace: BorrowedFd<'_>) -> Result<Self, Error> {
        netns::inside(namespace, Self::open)?
    }

    fn connect() -> io::Result<Self> {
        let inner = netlink_sys::Socket::new(P::NUMBER)?;
        // The kernel also binds it.
        inner.connect(&SocketAddr::new(0, 0))?;
        inner.set_ext_ack(true)?;
        inner.set_cap_ack(true)?;
        inner.set_netlink_get_strict_chk(true)?;
        let seconds = i64::try_from(ANSWER_WITHIN.as_secs()).unwrap_or(i64::MAX);
        setsockopt(&inner, ReceiveTimeout, &TimeVal::new(seconds, 0))?;
        Ok(Self {
            inner,
            sequence: 0,
            received: Vec::with_capacity(RECEIVE_BUFFER),
            changes_sent: 0,
            protocol: PhantomData,
        })
    }

    /// The socket's address: notifications about its own changes carry it.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn port(&self) -> Result<u32, Error> {
        let mut address = SocketAddr::new(0, 0);
        self.inner
            .get_address(&mut address)
            .map(|()| address.port_number())
            .map_err(|error| {
                Error::new(
                    "look up",
                    format!("the address of the {} socket", P::NAME),
                    error.into(),
                )
            })
    }

    /// Number of requests sent so far that change something.
    #[must_use]
    pub fn changes_sent(&self) -> u64 {
        self.changes_sent
    }

    /// Sends one change and waits for the kernel's answer.
    ///
    /// # Errors
    /// The kernel's refusal, or a socket that fails.
    pub fn execute(&mut self, request: &Request<P>) -> Result<(), Error> {
        self.batch(std::slice::from_ref(request))?
            .into_iter()
            .next()
            .unwrap_or(Ok(()))
    }

    /// As [`Socket::execute`]; returns what `read` makes of the message about the
    /// created object, if the kernel sends one (`NLM_F_ECHO`: for links since
    /// Linux 6.2).
    ///
    /// # Errors
    /// As [`Socket::execute`].
    pub(crate) fn create<T>(
        &mut self,
        request: &Request<P>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let fail = |cause| Error::new(request.operation, &request.object, cause);
        let sequence = self.send_one(request, Wanted::Created).map_err(fail)?;
        self.count_changes(1);
        let mut made = None;
        let mut end = None;
        while end.is_none() {
            self.receive(|answered, answer| {
                if answered != sequence {
                    return;
                }
                match answer {
                    Answer::Object { message, .. } => made = read(message),
                    Answer::End(result) => end = Some(result),
                }
            })
            .map_err(fail)?;
        }
        end.unwrap_or(Ok(())).map_err(fail).map(|()| made)
    }

    /// Sends changes, many in one system call, in their order. The kernel continues
    /// after a request that it refuses, and acknowledges only the last one of each
    /// system call. The answers are in the requests' order. A [`link::look`] may be
    /// among the requests.
    ///
    /// [`link::look`]: crate::link::look
    ///
    /// # Errors
    /// When the socket fails: then it is unknown which requests were carried out.
    pub fn batch(&mut self, requests: &[Request<P>]) -> Result<Vec<Result<(), Error>>, Error> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut bytes = Vec::new();
        for chunk in requests.chunks(BATCH) {
            bytes.clear();
            let first = self.sequence.wrapping_add(1);
            for (at, request) in chunk.iter().enumerate() {
                let sequence = self.next_sequence();
                // The kernel always answers what it refuses, and handles the
                // requests in their order: the last one's answer comes last.
                let answer = if at + 1 == chunk.len() {
                    Wanted::Answer
                } else {
                    Wanted::Error
                };
                request.write(sequence, answer, &mut bytes);
            }
            let fail = |cause| Error::new(chunk[0].operation, &chunk[0].object, cause);
            self.send(&bytes).map_err(fail)?;
            self.count_changes(chunk.len());

            let mut pending: Vec<Option<Result<(), Error>>> = chunk.iter().map(|_| None).collect();
            while matches!(pending.last(), Some(None)) {
                self.receive(|sequence, answer| {
                    let slot = sequence.wrapping_sub(first) as usize;
                    let (Some(entry), Some(request)) = (pending.get_mut(slot), chunk.get(slot))
                    else {
                        return;
                    };
                    let result = match answer {
                        Answer::End(result) => result,
                        // The answer to a look: only that it was done counts.
                        Answer::Object { .. } => Ok(()),
                    };
                    *entry =
                        Some(result.map_err(|cause| {
                            Error::new(request.operation, &request.object, cause)
                        }));
                })
                .map_err(fail)?;
            }
            answers.extend(pending.into_iter().map(|answer| answer.unwrap_or(Ok(()))));
        }
        Ok(answers)
    }

    /// Asks for one object.
    ///
    /// # Errors
    /// The kernel's refusal ([`Error::is_absent`] where there is none), or a
    /// socket that fails.
    pub fn get(&mut self, request: &Request<P>) -> Result<P::Message, Error> {
        let fail = |cause| Error::new(request.operation, &request.object, cause);
        let sequence = self.send_one(request, Wanted::Answer).map_err(fail)?;
        let mut found = None;
        while found.is_none() {
            self.receive(|answered, answer| {
                if answered != sequence || found.is_some() {
                    return;
                }
                found = Some(match answer {
                    Answer::Object { message, .. } => {
                        decode_object::<P>(message).map_err(Cause::Undecodable)
                    }
                    Answer::End(Err(cause)) => Err(cause),
                    Answer::End(Ok(())) => Err(Cause::Undecodable(
                        "an acknowledgement without an object".to_owned(),
                    )),
                });
            })
            .map_err(fail)?;
        }
        found.unwrap_or(Err(Cause::TimedOut)).map_err(fail)
    }

    /// Asks for all objects that match, and asks again when changes interrupted the
    /// dump. Objects that cannot be decoded are left out: they use attributes that
    /// this build does not know, so it has not made them.
    ///
    /// # Errors
    /// The kernel's refusal, a dump that was interrupted each time, or a socket that
    /// fails.
    pub fn dump(&mut self, request: &Request<P>) -> Result<Vec<P::Message>, Error> {
        let fail = |cause| Error::new(request.operation, &request.object, cause);
        for _ in 0..DUMP_TRIES {
            let sequence = self.send_one(request, Wanted::Answer).map_err(fail)?;
            let mut objects = Vec::new();
            let mut interrupted = false;
            let mut end = None;
            while end.is_none() {
                self.receive(|answered, answer| {
                    if answered != sequence {
                        return;
                    }
                    match answer {
                        Answer::Object {
                            message,
                            interrupted: now,
                        } => {
                            interrupted |= now;
                            objects.extend(decode_object::<P>(message).ok());
                        }
                        Answer::End(Err(Cause::Kernel {
                            errno: Errno::EINTR,
                            ..
                        })) => {
                            interrupted = true;
                            end = Some(Ok(()));
                        }
                        Answer::End(result) => end = Some(result),
                    }
                })
                .map_err(fail)?;
            }
            end.unwrap_or(Ok(())).map_err(fail)?;
            if !interrupted {
                return Ok(objects);
            }
        }
        Err(fail(Cause::Interrupted(DUMP_TRIES)))
    }

    fn send_one(&mut self, request: &Request<P>, answer: Wanted) -> Result<u32, Cause> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        request.write(sequence, answer, &mut bytes);
        self.send(&bytes)?;
        Ok(sequence)
    }

    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    pub(crate) fn count_changes(&mut self, sent: usize) {
        self.changes_sent += sent as u64;
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Cause> {
        loop {
            match self.inner.send(bytes, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one datagram and hands each message to `each`, with the sequence
    /// number of the request that it answers.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(u32, Answer<'_>)) -> Result<(), Cause> {
        self.received.clear();
        match self.inner.recv(&mut self.received, nix::libc::MSG_TRUNC) {
            Ok(length) if length > self.received.len() => {
                return Err(Cause::Undecodable(format!("{length} bytes in one message")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Cause::TimedOut),
            Err(error) => return Err(error.into()),
        }
        for message in messages(&self.received) {
            let message = message.map_err(Cause::Undecodable)?;
            each(
                NetlinkBuffer::new(message).sequence_number(),
                decode(message),
            );
        }
        Ok(())
    }
}

impl<P: Protocol> AsRawFd for Socket<P> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.inner.as_raw_fd()
    }
}

/// The messages of one datagram, each whole with its header.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<&[u8], String>> {
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

fn decode(bytes: &[u8]) -> Answer<'_> {
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
pub(crate) fn decode_object<P: Protocol>(message: &[u8]) -> Result<P::Message, String> {
    match NetlinkMessage::<P::Message>::deserialize(message) {
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
