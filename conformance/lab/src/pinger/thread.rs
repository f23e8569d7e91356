//! The thread that sends and receives for all pings of a set.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::ping::PingReport;

use super::record::PingRecord;
use super::schedule::{INTERVAL, Schedule};
use super::socket::EchoSocket;

/// How long answers are accepted after the last request.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of ready sockets that one call of epoll returns.
const MAX_EVENTS: usize = 64;

/// How the pings stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// When all requests are answered, or after [`LAST_ANSWER_TIMEOUT`].
    WhenAnswered,
    /// At once.
    Now,
}

/// One ping.
#[derive(Debug)]
struct Ping {
    socket: EchoSocket,
    schedule: Schedule,
    record: PingRecord,
}

/// The state of the thread.
#[derive(Debug)]
pub(super) struct PingLoop {
    pings: Vec<Ping>,
    /// Watches the socket of each ping, under the ping's index.
    epoll: Epoll,
    stop: Receiver<Stop>,
    /// Signals that each ping has had an answer; `None` after that.
    answered: Option<Sender<()>>,
    /// The number of requests of each ping so far, for those who wait for them.
    requests: Arc<[AtomicU32]>,
}

impl PingLoop {
    /// One ping for each socket, starting now.
    ///
    /// # Errors
    /// The system cannot create another epoll instance.
    pub(super) fn new(
        sockets: Vec<EchoSocket>,
        stop: Receiver<Stop>,
        answered: Sender<()>,
        requests: Arc<[AtomicU32]>,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, socket) in (0..).zip(&sockets) {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index))?;
        }
        let pings = (0..).zip(sockets).map(|(index, socket)| Ping {
            socket,
            schedule: Schedule::new(start, index),
            record: PingRecord::default(),
        });
        Ok(Self {
            pings: pings.collect(),
            epoll,
            stop,
            answered: Some(answered),
            requests,
        })
    }

    /// Sends and receives until it is stopped. Returns the reports in the order of the
    /// sockets.
    ///
    /// # Errors
    /// The system's error if epoll fails.
    pub(super) fn run(mut self) -> io::Result<Vec<PingReport>> {
        let mut end = None;
        loop {
            let now = Instant::now();
            match self.stop.try_recv() {
                Ok(Stop::WhenAnswered) => end = Some(now + LAST_ANSWER_TIMEOUT),
                Ok(Stop::Now) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
            let is_settled = || self.pings.iter().all(|ping| ping.record.is_settled());
            let until = match end {
                Some(_) if is_settled() => break,
                Some(end) => end,
                None => self.send(now),
            };
            // What came in time is there even if this thread could not run until then.
            let received = self.receive(until)?;
            if received == 0 && end.is_some_and(|end| now >= end) {
                break;
            }
            let has_answer = |ping: &Ping| ping.record.has_answer();
            if self.answered.is_some() && self.pings.iter().all(has_answer) {
                // Sending fails if the receiver has stopped waiting.
                let _ = self.answered.take().map(|answered| answered.send(()));
            }
        }
        let reports = self.pings.into_iter().map(|ping| ping.record.report());
        Ok(reports.collect())
    }

    /// Sends all requests that are due. Returns the time of the next one.
    fn send(&mut self, now: Instant) -> Instant {
        // Also without any ping, `stop` has to be checked.
        let mut next = now + INTERVAL;
        for (ping, requests) in self.pings.iter_mut().zip(self.requests.iter()) {
            if ping.schedule.next() <= now {
                ping.send();
                requests.store(ping.record.sent(), Ordering::Release);
            }
            next = next.min(ping.schedule.next());
        }
        next
    }

    /// Waits for answers, at most until that time, and receives them. Returns the number of
    /// sockets that had something.
    fn receive(&mut self, until: Instant) -> io::Result<usize> {
        // Rounded up to milliseconds, the resolution of epoll: a request is late by
        // less than that, and later ones are not delayed by it.
        let left = until.saturating_duration_since(Instant::now());
        let left = left.as_nanos().div_ceil(1_000_000);
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let wait = u16::try_from(left).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut events, wait) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in events.iter().take(count) {
            let index = usize::try_from(event.data()).ok();
            let Some(ping) = index.and_then(|index| self.pings.get_mut(index)) else {
                continue;
            };
            if event.events().contains(EpollFlags::EPOLLERR) {
                ping.read_icmp_errors();
            }
            if event.events().contains(EpollFlags::EPOLLIN) {
                ping.receive();
            }
        }
        Ok(count)
    }
}

impl Ping {
    fn send(&mut self) {
        let now = Instant::now();
        let missed = self.schedule.advance(now);
        let number = self.record.request(now, missed);
        if let Err(errno) = self.socket.send(number) {
            self.record.send_failed(number, errno.desc());
        }
    }

    /// Receives one message; if there are more, epoll reports the socket again.
    fn receive(&mut self) {
        match self.socket.receive() {
            Ok(Some(number)) => self.record.answer(number, Instant::now()),
            // Another kind of message, or a damaged one.
            Ok(None) | Err(Errno::EAGAIN) => {}
            Err(errno) => self.record.error(format!("receiving: {}", errno.desc())),
        }
    }

    /// Receives all queued ICMP errors.
    fn read_icmp_errors(&mut self) {
        loop {
            match self.socket.next_icmp_error(self.record.sent()) {
                Ok(Some(error)) => self.record.error(error.to_string()),
                // About a request of another socket to the same address.
                Ok(None) => {}
                Err(Errno::EAGAIN) => return,
                Err(errno) => {
                    self.record.error(format!("receiving: {}", errno.desc()));
                    return;
                }
            }
        }
    }
}
