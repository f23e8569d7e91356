//! Echo requests 100 times a second, between as many pairs as one likes.
//!
//! One thread does it for a whole set of [`Pings`]. A hundred processes of `ping`
//! would take two cores for themselves: with less than 10 ms between its requests
//! it does not sleep. Here a set sleeps until the next moment of its schedule or
//! the next answer.
//!
//! What always holds of the reports: each request that was tried has a number;
//! it is answered only if its own answer came, no later than 2 s after the last
//! request; and a moment at which none was sent, as the machine was busy, is
//! told.

mod account;
mod packet;
mod schedule;
mod socket;
mod thread;

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::LabError;
use crate::netns::Netns;
use crate::ping::PingReport;
use crate::signals::end_here_if_leaving;

use thread::{End, Work};

pub use socket::EchoSocket;

/// For the first answers.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// Pings that go on, each 100 times a second, until they are told to stop.
#[derive(Debug)]
pub struct Pings {
    names: Vec<String>,
    orders: Sender<End>,
    /// None once it has been waited for.
    thread: Option<JoinHandle<io::Result<Vec<PingReport>>>>,
}

impl Pings {
    /// Starts them, each with the name that people know it by, and waits until
    /// each has had an answer.
    ///
    /// # Errors
    /// One has had no answer within 5 s, or there is no room for a thread.
    pub fn start(pings: impl IntoIterator<Item = (String, EchoSocket)>) -> Result<Self, LabError> {
        let (names, sockets): (Vec<String>, _) = pings.into_iter().unzip();
        let (orders, ordered) = mpsc::channel();
        let (answered, first) = mpsc::channel();
        let failed = |source| LabError::Pings { source };
        let work = Work::new(sockets, ordered, answered).map_err(failed)?;
        let thread = std::thread::Builder::new().name("pings".to_owned());
        let thread = thread.spawn(move || work.run()).map_err(failed)?;
        let mut pings = Self {
            names,
            orders,
            thread: Some(thread),
        };
        pings.wait_for_answers(&first)?;
        Ok(pings)
    }

    fn wait_for_answers(&mut self, first: &Receiver<()>) -> Result<(), LabError> {
        match first.recv_timeout(FIRST_ANSWER) {
            Ok(()) => Ok(()),
            // It has ended by itself, and says why.
            Err(RecvTimeoutError::Disconnected) => self.end(End::Now).map(drop),
            Err(RecvTimeoutError::Timeout) => {
                let reports = self.end(End::Now)?;
                let silent: Vec<String> = reports
                    .iter()
                    .filter(|(_, report)| report.answered.is_empty())
                    .map(|(name, report)| format!("{name}: {report}"))
                    .collect();
                Err(LabError::TimedOut {
                    what: "the first answer to each ping".to_owned(),
                    seconds: FIRST_ANSWER.as_secs(),
                    last: silent.join("; "),
                })
            }
        }
    }

    /// Ends them, once all requests are answered or 2 s after the last; what
    /// became of each, by its name.
    ///
    /// # Errors
    /// The thread has ended before.
    pub fn stop(mut self) -> Result<Vec<(String, PingReport)>, LabError> {
        self.end(End::Settled)
    }

    fn end(&mut self, end: End) -> Result<Vec<(String, PingReport)>, LabError> {
        // It takes none if it has ended by itself.
        let _ = self.orders.send(end);
        let reports = match self.thread.take().map(JoinHandle::join) {
            None => Vec::new(),
            Some(Ok(ended)) => ended.map_err(|source| {
                end_here_if_leaving();
                LabError::Pings { source }
            })?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        };
        Ok(std::mem::take(&mut self.names)
            .into_iter()
            .zip(reports)
            .collect())
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        let _ = self.orders.send(End::Now);
        // Its sockets keep their namespaces alive. It does not panic, and if it
        // did nothing would hang on it here.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One of them.
#[derive(Debug)]
pub struct ContinuousPing(Pings);

impl ContinuousPing {
    /// Starts it inside a namespace, and waits for the first answer.
    ///
    /// # Errors
    /// As [`Pings::start`]; the namespace has no route there.
    pub fn start(from: &Netns, to: impl Into<IpAddr>) -> Result<Self, LabError> {
        let to = to.into();
        let socket = from.enter(|| EchoSocket::open(to))?;
        let socket = socket.map_err(|source| {
            end_here_if_leaving();
            LabError::Namespace {
                action: "open a socket for pings",
                namespace: from.name().to_owned(),
                source,
            }
        })?;
        let name = format!("{to} from {}", from.name());
        Pings::start([(name, socket)]).map(Self)
    }

    /// Ends it as [`Pings::stop`] does; what became of it.
    ///
    /// # Errors
    /// As [`Pings::stop`].
    pub fn stop(self) -> Result<PingReport, LabError> {
        let reports = self.0.stop()?;
        Ok(reports
            .into_iter()
            .map(|(_, report)| report)
            .next()
            .unwrap_or_default())
    }
}
