//! The synchronous socket for every netlink protocol.
//!
//! It asks the kernel for strict checking and extended answers, waits for a limited
//! time, and repeats dumps that changes have interrupted. It is connected to the
//! kernel: a message from any other sender is refused by the kernel itself
//! (`netlink_getsockbyportid`), so what is received is the kernel's.

use std::os::fd::{AsRawFd, RawFd};
use std::{io, marker::PhantomData, time::Duration};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::SocketAddr;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::{errno::Errno, sys::time::TimeVal};

use crate::answer::{Answer, decode, decode_object, messages};
use crate::error::{Cause, Error};
use crate::protocol::Protocol;
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

/// A connection to the kernel's side of a protocol in one network namespace.
#[derive(Debug)]
pub struct Socket<P: Protocol> {
    pub(crate) inner: netlink_sys::Socket,
    sequence: u32,
    received: Vec<u8>,
    pub(crate) changes_sent: u64,
    protocol: PhantomData<P>,
}

impl<P: Protocol> AsRawFd for Socket<P> {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl<P: Protocol> Socket<P> {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket, or one without strict checking
    /// (before Linux 4.20).
    pub fn open() -> Result<Self, Error> {
        Self::connect()
            .map_err(|error| Error::new("open", format!("the {} socket", P::NAME), error))
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
                let object = format!("the address of the {} socket", P::NAME);
                Error::new("look up", object, error)
            })
    }

    /// Number of requests sent so far that change something.
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

    /// As [`Socket::execute`]; returns the created object, if the kernel reports it
    /// (`NLM_F_ECHO`: for links since Linux 6.2).
    ///
    /// # Errors
    /// As [`Socket::execute`].
    pub(crate) fn create(&mut self, request: &Request<P>) -> Result<Option<P::Message>, Error> {
        let mut made = None;
        let end = self.exchange(request, Wanted::Created, |answer| match answer {
            Answer::Object { message, .. } => {
                made = decode_object::<P>(message).ok();
                None
            }
            Answer::End(result) => Some(result),
        });
        end.map_err(|cause| request.failed(cause)).map(|()| made)
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
            let fail = |cause| chunk[0].failed(cause);
            self.send(&bytes).map_err(fail)?;
            self.changes_sent += chunk.len() as u64;

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
                    *entry = Some(result.map_err(|cause| request.failed(cause)));
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
        let found = self.exchange(request, Wanted::Answer, |answer| {
            Some(match answer {
                Answer::Object { message, .. } => {
                    decode_object::<P>(message).map_err(Cause::Undecodable)
                }
                Answer::End(Err(cause)) => Err(cause),
                Answer::End(Ok(())) => Err(Cause::Undecodable(
                    "an acknowledgement without an object".to_owned(),
                )),
            })
        });
        found.map_err(|cause| request.failed(cause))
    }

    /// Asks for all objects that match, and asks again when changes interrupted the
    /// dump. Objects that cannot be decoded are left out: they use attributes that
    /// this build does not know, so it has not made them.
    ///
    /// # Errors
    /// The kernel's refusal, a dump that was interrupted each time, or a socket that
    /// fails.
    pub fn dump(&mut self, request: &Request<P>) -> Result<Vec<P::Message>, Error> {
        self.dump_into(request, |message, objects| objects.push(message))
    }

    /// As [`Socket::dump`]; `keep` puts what it makes of each object into the answer,
    /// so that what nobody needs takes no memory.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn dump_into<T>(
        &mut self,
        request: &Request<P>,
        mut keep: impl FnMut(P::Message, &mut Vec<T>),
    ) -> Result<Vec<T>, Error> {
        for _ in 0..DUMP_TRIES {
            let mut objects = Vec::new();
            if self.dump_once(request, |message| keep(message, &mut objects))? {
                return Ok(objects);
            }
        }
        Err(request.failed(Cause::Interrupted(DUMP_TRIES)))
    }

    /// As [`Socket::dump`]; hands each object to `each` while the dump arrives: it takes no
    /// memory, and what was handed over may come again if changes interrupted the dump.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn dump_each(
        &mut self,
        request: &Request<P>,
        mut each: impl FnMut(P::Message),
    ) -> Result<(), Error> {
        self.dump_into(request, |message, _: &mut Vec<()>| each(message))
            .map(drop)
    }

    /// Asks once for all objects that match. Whether these are all: not if changes interrupted
    /// the dump.
    fn dump_once(
        &mut self,
        request: &Request<P>,
        mut each: impl FnMut(P::Message),
    ) -> Result<bool, Error> {
        let mut interrupted = false;
        let end = self.exchange(request, Wanted::Answer, |answer| match answer {
            Answer::Object {
                message,
                interrupted: now,
            } => {
                interrupted |= now;
                if let Ok(message) = decode_object::<P>(message) {
                    each(message);
                }
                None
            }
            Answer::End(result) => Some(result),
        });
        match end {
            Ok(()) => Ok(!interrupted),
            Err(Cause::Kernel {
                errno: Errno::EINTR,
                ..
            }) => Ok(false),
            Err(cause) => Err(request.failed(cause)),
        }
    }

    /// Sends one request and receives its answers, until `read` makes a result of one.
    fn exchange<T>(
        &mut self,
        request: &Request<P>,
        wanted: Wanted,
        mut read: impl FnMut(Answer<'_>) -> Option<Result<T, Cause>>,
    ) -> Result<T, Cause> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        request.write(sequence, wanted, &mut bytes);
        self.send(&bytes)?;
        self.changes_sent += u64::from(wanted == Wanted::Created);
        let mut result = None;
        loop {
            self.receive(|answered, answer| {
                if answered == sequence && result.is_none() {
                    result = read(answer);
                }
            })?;
            if let Some(result) = result.take() {
                return result;
            }
        }
    }

    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
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

    /// Takes the answers that wait out of the receive buffer. A buffer that has
    /// overflowed stays full otherwise, and each later request fails with `ENOBUFS`.
    fn discard(&mut self) {
        let received = &mut self.received;
        let mut next = || {
            received.clear();
            self.inner.recv_from(received, nix::libc::MSG_DONTWAIT)
        };
        while next().is_ok() {}
    }

    /// Receives one datagram and hands each message to `each`, with the sequence
    /// number of the request that it answers.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(u32, Answer<'_>)) -> Result<(), Cause> {
        self.received.clear();
        let received = self
            .inner
            .recv_from(&mut self.received, nix::libc::MSG_TRUNC);
        match received.map(|(length, sender)| (length, sender.port_number())) {
            // The kernel has refused it already; nothing depends on that alone.
            Ok((_, sender)) if sender != 0 => return Ok(()),
            Ok((length, _)) if length > self.received.len() => {
                return Err(Cause::Undecodable(format!("{length} bytes in one message")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Cause::TimedOut),
            Err(error) => {
                self.discard();
                return Err(error.into());
            }
        }
        for message in messages(&self.received) {
            let message = message.map_err(Cause::Undecodable)?;
            let sequence = NetlinkBuffer::new(message).sequence_number();
            each(sequence, decode(message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
