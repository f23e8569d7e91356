//! Continuous pings: 100 echo requests a second between any number of pairs.
//!
//! One thread serves a whole set of [`Pings`]. A hundred processes of `ping` would
//! keep two cores busy: `ping` does not sleep if less than 10 ms are between its
//! requests. The thread here sleeps until the next scheduled request or the next
//! answer.
//!
//! Invariants of the reports: each request has a number, even if it could not be
//! sent; it counts as answered only if its own answer came, at most 2 s after the
//! last request; scheduled requests that were skipped because the machine was busy
//! are counted.

mod packet;
mod record;
mod schedule;
mod socket;
mod thread;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::LabError;
use crate::netns::Netns;
use crate::ping::PingReport;
use crate::run::wait_until;
use crate::signals::block_if_shutting_down;

use thread::{PingLoop, Stop};

pub use socket::EchoSocket;

/// Maximum time until each ping of a set has had its first answer.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time until each ping of a set has made some more requests.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(30);

/// A set of pings, each 100 times a second, until [`Pings::stop`].
#[derive(Debug)]
pub struct Pings {
    names: Vec<String>,
    /// The number of requests of each ping so far.
    requests: Arc<[AtomicU32]>,
    stop: Sender<Stop>,
    /// `None` after it has been joined.
    thread: Option<JoinHandle<io::Result<Vec<PingReport>>>>,
}

impl Pings {
    /// Starts them, each with its name for reports, and waits until each has had an
    /// answer.
    ///
    /// # Errors
    /// One has had no answer within 30 s, or the thread cannot be started.
    pub fn start(pings: impl IntoIterator<Item = (String, EchoSocket)>) -> Result<Self, LabError> {
        Self::start_within(FIRST_ANSWER_TIMEOUT, pings)
    }

    /// As [`Pings::start`], with another limit for the first answers.
    ///
    /// # Errors
    /// As [`Pings::start`].
    pub fn start_within(
        limit: Duration,
        pings: impl IntoIterator<Item = (String, EchoSocket)>,
    ) -> Result<Self, LabError> {
        let (names, sockets): (Vec<String>, _) = pings.into_iter().unzip();
        let (stop, stop_receiver) = mpsc::channel();
        let (answered, first) = mpsc::channel();
        let failed = |source| LabError::Pings { source };
        let requests: Arc<[AtomicU32]> = names.iter().map(|_| AtomicU32::new(0)).collect();
        let counted = Arc::clone(&requests);
        let ping_loop = PingLoop::new(sockets, stop_receiver, answered, counted);
        let ping_loop = ping_loop.map_err(failed)?;
        let thread = std::thread::Builder::new().name("pings".to_owned());
        let thread = thread.spawn(move || ping_loop.run()).map_err(failed)?;
        let mut pings = Self {
            names,
            requests,
            stop,
            thread: Some(thread),
        };
        pings.wait_for_answers(limit, &first)?;
        Ok(pings)
    }

    fn wait_for_answers(&mut self, limit: Duration, first: &Receiver<()>) -> Result<(), LabError> {
        match first.recv_timeout(limit) {
            Ok(()) => Ok(()),
            // The thread has ended; joining it returns its error.
            Err(RecvTimeoutError::Disconnected) => self.end(Stop::Now).map(drop),
            Err(RecvTimeoutError::Timeout) => {
                let reports = self.end(Stop::Now)?;
                let silent: Vec<String> = reports
                    .iter()
                    .filter(|(_, report)| report.answered.is_empty())
                    .map(|(name, report)| format!("{name}: {report}"))
                    .collect();
                Err(LabError::TimedOut {
                    what: "the first answer to each ping".to_owned(),
                    seconds: limit.as_secs(),
                    last: silent.join("; "),
                })
            }
        }
    }

    /// Waits until each ping has made so many more requests, which were sent or refused.
    /// The first of them may have been under way before.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] after 30 s, if the thread has ended or cannot run.
    pub fn wait_for_requests(&self, more: u32) -> Result<(), LabError> {
        let count = || self.requests.iter().map(|one| one.load(Ordering::Acquire));
        let goals: Vec<u32> = count().map(|before| before + more).collect();
        wait_until("requests of each ping", REQUESTS_TIMEOUT, || {
            match count().zip(&goals).all(|(now, goal)| now >= *goal) {
                true => Ok(()),
                false => Err(format!("{:?} of {goals:?}", count().collect::<Vec<_>>())),
            }
        })
    }

    /// Stops them. Returns when all requests are answered, or 2 s after the last
    /// one, with the name and the report of each ping.
    ///
    /// # Errors
    /// The thread has ended before, with an error.
    pub fn stop(mut self) -> Result<Vec<(String, PingReport)>, LabError> {
        self.end(Stop::WhenAnswered)
    }

    fn end(&mut self, end: Stop) -> Result<Vec<(String, PingReport)>, LabError> {
        // Sending fails if the thread has ended by itself; joining reports that.
        let _ = self.stop.send(end);
        let reports = match self.thread.take().map(JoinHandle::join) {
            None => Vec::new(),
            Some(Ok(ended)) => ended.map_err(|source| {
                block_if_shutting_down();
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
        let _ = self.stop.send(Stop::Now);
        // Wait for the thread: its sockets keep the namespaces alive. Its result is
        // not needed any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A single continuous ping.
#[derive(Debug)]
pub struct ContinuousPing(Pings);

impl ContinuousPing {
    /// Starts it inside a namespace, and waits for the first answer.
    ///
    /// # Errors
    /// As [`Pings::start`]; the namespace has no route to the address.
    pub fn start(from: &Netns, to: impl Into<IpAddr>) -> Result<Self, LabError> {
        let to = to.into();
        let socket = from.enter(|| EchoSocket::open(to))?;
        let socket = socket.map_err(|source| {
            block_if_shutting_down();
            LabError::Namespace {
                action: "open a socket for pings",
                namespace: from.name().to_owned(),
                source,
            }
        })?;
        let name = format!("{to} from {}", from.name());
        Pings::start([(name, socket)]).map(Self)
    }

    /// Stops it as [`Pings::stop`] does, and returns its report.
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
