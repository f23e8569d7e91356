//! Continuous pings: 100 echo requests a second between any number of pairs.
//!
//! Each has a thread, which sleeps until its next request or answer. A process of `ping` would
//! keep a processor busy: it does not sleep in the last 10 ms before a request.
//!
//! Each request has a number, even if it could not be sent, and is answered only if its own
//! answer came, at most 2 s after the last request.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, socket,
};

use crate::error::LabError;
use crate::netns::Netns;
use crate::ping::PingReport;
use crate::run::wait_until;
use crate::signals::block_if_shutting_down;

/// Time between the requests of one ping.
const INTERVAL: Duration = Duration::from_millis(10);

/// Maximum time until each ping of a set has had its first answer.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers are accepted after the last request.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of error texts that are kept: a broken path causes 100 equal ones a second.
const MAX_ERRORS: usize = 100;

/// Size of a message in bytes, the same as that of `ping`.
const LENGTH: usize = 64;

/// Sends echo requests to one address and receives their answers (RFC 792, RFC 4443). It
/// belongs to the network namespace of the thread that opened it, and can be used on any thread.
///
/// It is a raw socket: in a new namespace no user, not even root, may open what the
/// kernel calls a ping socket. It also receives the answers to other requests to the same
/// address from that namespace, so the payload says whose an answer is.
#[derive(Debug)]
pub struct EchoSocket {
    // It sends and receives as one of UDP does, once it is connected.
    socket: UdpSocket,
    is_ipv4: bool,
    /// Process and socket.
    token: [u8; 8],
}

impl EchoSocket {
    /// Opens a socket in the namespace of this thread, for requests to `peer`. It
    /// keeps the source address that the route to `peer` has now.
    ///
    /// # Errors
    /// The system's error: no right to open raw sockets, or no route.
    pub fn open(peer: impl Into<IpAddr>) -> io::Result<Self> {
        /// The number of sockets that this process has opened.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let peer = peer.into();
        let (domain, protocol) = match peer {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(domain, SockType::Raw, flags, protocol)?;
        let address = SockaddrStorage::from(SocketAddr::new(peer, 0));
        connect(socket.as_raw_fd(), &address)?;
        let count = OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            socket: socket.into(),
            is_ipv4: peer.is_ipv4(),
            token: ((u64::from(std::process::id()) << 32) | u64::from(count)).to_be_bytes(),
        })
    }

    fn send(&self, number: u32) -> io::Result<()> {
        let mut message = [0; LENGTH];
        message[0] = if self.is_ipv4 { 8 } else { 128 };
        message[4..8].copy_from_slice(&number.to_be_bytes());
        message[8..16].copy_from_slice(&self.token);
        message[16..20].copy_from_slice(&number.to_be_bytes());
        // The kernel replaces it for ICMPv6, where it also covers the addresses.
        let checksum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        self.socket.send(&message).map(drop)
    }

    /// The number of the request that is answered next, if one is until then.
    fn receive(&self, until: Instant) -> Option<u32> {
        // Rounded up to milliseconds: a request is late by less than that.
        let left = until.saturating_duration_since(Instant::now());
        let millis = left.as_nanos().div_ceil(1_000_000);
        let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // Whatever fails here shows as a request without an answer.
        let _ = poll(&mut ready, u16::try_from(millis).unwrap_or(u16::MAX));
        let mut buffer = [0; 60 + LENGTH];
        let length = self.socket.recv(&mut buffer).ok()?;
        self.answered(&buffer[..length])
    }

    /// The number of the request that a packet answers. A raw socket receives IPv4 packets
    /// with their IP header and an unverified checksum, and IPv6 packets without either.
    fn answered(&self, packet: &[u8]) -> Option<u32> {
        let (answer, message) = if self.is_ipv4 {
            let header = usize::from(packet.first()? & 0x0f) * 4;
            (0, packet.get(header..).filter(|m| checksum(m) == 0)?)
        } else {
            (129, packet)
        };
        let number: [u8; 4] = message.get(16..20)?.try_into().ok()?;
        let is_own = message[0] == answer && message[8..16] == self.token;
        is_own.then(|| u32::from_be_bytes(number))
    }
}

/// The checksum of RFC 1071; it is 0 over a message that contains its checksum.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|word| match *word {
        [high, low] => u16::from_be_bytes([high, low]),
        _ => u16::from(word[0]) << 8,
    });
    !words.fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// A set of pings, each 100 times a second, until [`Pings::stop`].
#[derive(Debug)]
pub struct Pings {
    pings: Vec<Ping>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Ping {
    name: String,
    /// How many requests and answers there were so far.
    counts: Arc<[AtomicU32; 2]>,
    thread: JoinHandle<PingReport>,
}

impl Pings {
    /// Starts them, each with its name for reports, and waits until each has had an
    /// answer.
    ///
    /// # Errors
    /// One has had no answer within 30 s.
    pub fn start(pings: impl IntoIterator<Item = (String, EchoSocket)>) -> Result<Self, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let ping = |(name, socket)| {
            let counts: Arc<[AtomicU32; 2]> = Arc::default();
            let (counted, stop) = (Arc::clone(&counts), Arc::clone(&stop));
            let thread = std::thread::spawn(move || run(&socket, &counted, &stop));
            Ping {
                name,
                counts,
                thread,
            }
        };
        let pings = Self {
            pings: pings.into_iter().map(ping).collect(),
            stop,
        };
        wait_until(
            "the first answer to each ping",
            FIRST_ANSWER_TIMEOUT,
            || {
                let silent = pings.pings.iter().filter(|ping| ping.count(1) == 0);
                match silent.map(|ping| ping.name.as_str()).collect::<Vec<_>>() {
                    silent if silent.is_empty() => Ok(()),
                    silent => Err(silent.join("; ")),
                }
            },
        )?;
        Ok(pings)
    }

    /// The number of requests so far, of the ping that has the fewest.
    #[must_use]
    pub fn requests(&self) -> u32 {
        let counts = self.pings.iter().map(|ping| ping.count(0));
        counts.min().unwrap_or_default()
    }

    /// Stops them. Returns when all requests are answered, or 2 s after the last
    /// one, with the name and the report of each ping.
    #[must_use]
    pub fn stop(mut self) -> Vec<(String, PingReport)> {
        self.stop.store(true, Ordering::Release);
        let pings = std::mem::take(&mut self.pings).into_iter();
        let ended = pings.map(|ping| match ping.thread.join() {
            Ok(report) => (ping.name, report),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for ping in self.pings.drain(..) {
            // Its socket keeps the namespace alive. Its report is not needed any more.
            let _ = ping.thread.join();
        }
    }
}

impl Ping {
    fn count(&self, which: usize) -> u32 {
        self.counts[which].load(Ordering::Acquire)
    }
}

/// Sends and receives until it is told to stop.
fn run(socket: &EchoSocket, counts: &[AtomicU32; 2], stop: &AtomicBool) -> PingReport {
    let mut report = PingReport::default();
    let mut open = BTreeMap::new();
    let mut round_trips = Duration::ZERO;
    // The next request, or the end.
    let mut next = Instant::now();
    let mut is_ending = false;
    loop {
        let now = Instant::now();
        if !is_ending && stop.load(Ordering::Acquire) {
            (is_ending, next) = (true, now + LAST_ANSWER_TIMEOUT);
        }
        if !is_ending && now >= next {
            report.sent += 1;
            open.insert(report.sent, now);
            if let Err(error) = socket.send(report.sent) {
                let text = format!("request {} could not be sent: {error}", report.sent);
                report.errors.push(text);
                report.errors.truncate(MAX_ERRORS);
            }
            counts[0].store(report.sent, Ordering::Release);
            // Counted from the last time, so that delays do not add up. A late ping does not
            // catch up: hundreds of requests at once would overflow a queue.
            next = (next + INTERVAL).max(now);
        }
        if is_ending && open.is_empty() {
            break;
        }
        match socket.receive(next) {
            Some(number) => {
                if let Some(sent) = open.remove(&number) {
                    round_trips += sent.elapsed();
                    report.answered.insert(number);
                    counts[1].fetch_add(1, Ordering::Release);
                }
            }
            // What came in time is there even if this thread could not run until then.
            None if is_ending && now >= next => break,
            None => {}
        }
    }
    let answers = counts[1].load(Ordering::Acquire);
    let average = round_trips.as_secs_f64() * 1000.0 / f64::from(answers);
    report.average_ms = (answers > 0).then_some(average);
    report
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
        let opened = from.enter(|| EchoSocket::open(to))?;
        let socket = opened.map_err(|source| {
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
    #[must_use]
    pub fn stop(self) -> PingReport {
        let reports = self.0.stop().into_iter();
        reports.map(|(_, report)| report).next().unwrap_or_default()
    }
}
