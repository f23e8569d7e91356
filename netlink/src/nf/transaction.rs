//! Writes that the kernel carries out all together or not at all.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::SndBufForce};

use super::{Attributes, Message, NfTables, SUBSYSTEM, Socket};
use crate::answer::Answer;
use crate::error::{Cause, Error};
use crate::request::{Request, Wanted};

/// `NFNL_MSG_BATCH_BEGIN`.
const BEGIN: u16 = 16;
/// `NFNL_MSG_BATCH_END`.
const END: u16 = 17;

/// Writes in their order.
#[derive(Debug, Clone)]
pub struct Transaction {
    object: String,
    writes: Vec<Request<NfTables>>,
}

impl Transaction {
    /// An empty transaction that changes `object`, as a person would name it.
    pub fn new(object: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            writes: Vec::new(),
        }
    }

    /// Adds a message that makes or changes an object.
    pub fn create(&mut self, message: Message) {
        let request = self.request(message, NLM_F_CREATE | NLM_F_ACK);
        self.writes.push(request);
    }

    /// Adds a message that deletes an object.
    pub fn delete(&mut self, message: Message) {
        self.writes.push(self.request(message, NLM_F_ACK));
    }

    fn request(&self, message: Message, flags: u16) -> Request<NfTables> {
        Request::new("change", self.object.clone(), message, flags)
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The message that begins or ends it.
    fn frame(&self, kind: u16) -> Request<NfTables> {
        let message = Message {
            kind,
            family: super::FAMILY_ANY,
            resource: SUBSYSTEM,
            attributes: Attributes::new(),
        };
        self.request(message, 0)
    }
}

impl Socket {
    /// Carries out `transaction` as a whole, or not at all.
    ///
    /// # Errors
    /// The kernel's first refusal: then nothing was changed. `EMSGSIZE` says that
    /// the messages do not fit into one datagram, and that this process must not make
    /// room for them (`CAP_NET_ADMIN` in the machine's first user namespace).
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), Error> {
        let Some((last, earlier)) = transaction.writes.split_last() else {
            return Ok(());
        };
        let fail = |cause| Error::new("change", &transaction.object, cause);
        let mut bytes = Vec::new();
        let begin = self.next_sequence();
        let (first, end) = (transaction.frame(BEGIN), transaction.frame(END));
        first.write(begin, Wanted::Error, &mut bytes);
        for write in earlier {
            write.write(self.next_sequence(), Wanted::Error, &mut bytes);
        }
        let acknowledged = self.next_sequence();
        last.write(acknowledged, Wanted::Answer, &mut bytes);
        end.write(self.next_sequence(), Wanted::Error, &mut bytes);
        self.send_as_one(&bytes).map_err(fail)?;
        self.changes_sent += transaction.len() as u64;

        // The kernel sends errors in the order of the messages. An error about the
        // transaction as a whole has the sequence number of its beginning, and is
        // sent before the others.
        let span = acknowledged.wrapping_sub(begin);
        let mut result: Option<Result<(), Cause>> = None;
        loop {
            self.receive(|answered, answer| match answer {
                Answer::End(end) if answered.wrapping_sub(begin) <= span => {
                    result.get_or_insert(end);
                }
                _ => {}
            })
            .map_err(fail)?;
            if let Some(result) = result {
                return result.map_err(fail);
            }
        }
    }

    /// Waits until notifications have been sent of every transaction that [`generation`] has
    /// counted by now: it counts one before it is notified of.
    ///
    /// [`generation`]: super::object::generation
    ///
    /// # Errors
    /// When the socket fails.
    pub fn await_notifications(&mut self) -> Result<(), Error> {
        // One that is empty changes nothing and has no number and no answer, but waits its turn
        // (`nf_tables_valid_genid`, `nf_tables_commit`): the kernel carries it out before
        // `send` returns.
        let empty = Transaction::new("nothing");
        let mut bytes = Vec::new();
        for kind in [BEGIN, END] {
            let frame = empty.frame(kind);
            frame.write(self.next_sequence(), Wanted::Error, &mut bytes);
        }
        self.send(&bytes)
            .map_err(|cause| Error::new("await", "the transactions of nf_tables", cause))
    }

    /// Sends one datagram. The default of `net.core.wmem_default` has room for the
    /// elements of one or two thousand Nodes.
    fn send_as_one(&self, bytes: &[u8]) -> Result<(), Cause> {
        match self.send(bytes) {
            Err(Cause::Io(error)) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                // The kernel doubles it. Who may not raise it gets the first error again.
                let _ = setsockopt(&self.inner, SndBufForce, &bytes.len());
                self.send(bytes)
            }
            sent => sent,
        }
    }
}
