//! The thread that sends and receives for all pings of a set.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::ping::PingReport;

use super::account::Account;
use super::schedule::{INTERVAL, Schedule};
use super::socket::EchoSocket;

/// How long answers count after the last request.
const WAIT: Duration = Duration::from_secs(2);

/// Sockets with news that are seen to at once.
const AT_ONCE: usize = 64;

/// How the pings are to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Once all is answered, or nothing more is to be expected.
    Settled,
    /// At once.
    Now,
}

/// One ping.
#[derive(Debug)]
struct Pair {
    socket: EchoSocket,
    schedule: Schedule,
    account: Account,
}

/// All that the thread works with.
#[derive(Debug)]
pub(super) struct Work {
    pairs: Vec<Pair>,
    /// Has each pair's socket under its index.
    epoll: Epoll,
    /// How to end, once that is told.
    orders: Receiver<End>,
    /// To tell that each ping has had an answer; none once it is told.
    answered: Option<Sender<()>>,
}

impl Work {
    /// For these sockets, from now on.
    ///
    /// # Errors
    /// The system has no room for another epoll instance.
    pub(super) fn new(
        sockets: Vec<EchoSocket>,
        orders: Receiver<End>,
        answered: Sender<()>,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, socket) in (0..).zip(&sockets) {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index))?;
        }
        let pairs = (0..).zip(sockets).map(|(index, socket)| Pair {
            socket,
            schedule: Schedule::new(start, index),
            account: Account::default(),
        });
        Ok(Self {
            pairs: pairs.collect(),
            epoll,
            orders,
            answered: Some(answered),
        })
    }

    /// Does it until it is told to end; the reports, in the order of the sockets.
    ///
    /// # Errors
    /// The system's answer, where it cannot be waited any more.
    pub(super) fn run(mut self) -> io::Result<Vec<PingReport>> {
        let mut end = None;
        loop {
            let now = Instant::now();
            match self.orders.try_recv() {
                Ok(End::Settled) => end = Some(now + WAIT),
                Ok(End::Now) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
            let is_settled = || self.pairs.iter().all(|pair| pair.account.is_settled());
            let until = match end {
                Some(end) if now >= end || is_settled() => break,
                Some(end) => end,
                None => self.send(now),
            };
            self.receive(until)?;
            let has_answer = |pair: &Pair| pair.account.has_answer();
            if self.answered.is_some() && self.pairs.iter().all(has_answer) {
                // Whoever asked may have given up.
                let _ = self.answered.take().map(|answered| answered.send(()));
            }
        }
        let reports = self.pairs.into_iter().map(|pair| pair.account.report());
        Ok(reports.collect())
    }

    /// Sends all requests whose moment has come; the next moment.
    fn send(&mut self, now: Instant) -> Instant {
        // Without any ping there are still orders to look for.
        let mut next = now + INTERVAL;
        for pair in &mut self.pairs {
            if pair.schedule.next() <= now {
                pair.send();
            }
            next = next.min(pair.schedule.next());
        }
        next
    }

    /// Waits for answers, no longer than to that moment, and takes them.
    fn receive(&mut self, until: Instant) -> io::Result<()> {
        // Up to the next millisecond: what epoll can wait for. A request is
        // late by that at most, and those that follow are not.
        let left = until.saturating_duration_since(Instant::now());
        let left = left.as_nanos().div_ceil(1_000_000);
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let wait = u16::try_from(left).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut events, wait) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in events.iter().take(count) {
            let index = usize::try_from(event.data()).ok();
            let Some(pair) = index.and_then(|index| self.pairs.get_mut(index)) else {
                continue;
            };
            if event.events().contains(EpollFlags::EPOLLERR) {
                pair.refusals();
            }
            if event.events().contains(EpollFlags::EPOLLIN) {
                pair.receive();
            }
        }
        Ok(())
    }
}

impl Pair {
    fn send(&mut self) {
        let now = Instant::now();
        let missed = self.schedule.pass(now);
        let number = self.account.request(now, missed);
        if let Err(errno) = self.socket.send(number) {
            self.account.refuse(number, errno.desc());
        }
    }

    /// Takes one message; if there are more, epoll tells so again.
    fn receive(&mut self) {
        match self.socket.receive() {
            Ok(Some(number)) => self.account.answer(number, Instant::now()),
            // A message of another kind, or one that somebody damaged.
            Ok(None) | Err(Errno::EAGAIN) => {}
            Err(errno) => self.account.error(format!("receiving: {}", errno.desc())),
        }
    }

    /// Takes all ICMP errors.
    fn refusals(&mut self) {
        loop {
            match self.socket.refusal(self.account.sent()) {
                Ok(Some(refusal)) => self.account.error(refusal.to_string()),
                // About a request of somebody else to the same address.
                Ok(None) => {}
                Err(Errno::EAGAIN) => return,
                Err(errno) => {
                    self.account.error(format!("receiving: {}", errno.desc()));
                    return;
                }
            }
        }
    }
}
