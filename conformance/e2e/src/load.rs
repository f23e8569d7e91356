//! New connections all the time, each with one request: what clients of a Service notice
//! while its endpoints change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tweed_lab::Transport;

use crate::endpoint::Endpoint;
use crate::netexec::Connection;
use crate::stop::{Stop, Stopped};

/// Number of threads of a client. A request that takes long does not delay those of the
/// others.
const THREADS: usize = 4;

/// Pause between two requests of a thread: together they send about 100 a second.
const PAUSE: Duration = Duration::from_millis(40);

/// Maximum time until a request is answered; long enough for a machine that compiles at
/// the same time.
const LIMIT: Duration = Duration::from_secs(20);

/// Maximum number of failures that are told.
const MAX_TOLD: usize = 5;

/// The addresses to which a client sends requests, in turn. They may change while it runs.
#[derive(Debug, Clone, Default)]
pub struct Targets(Arc<Mutex<Vec<SocketAddr>>>);

impl Targets {
    /// From now on requests go to these addresses.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn pick(&self, count: usize) -> Option<SocketAddr> {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(count % addresses.len().max(1)).copied()
    }
}

impl From<SocketAddr> for Targets {
    fn from(address: SocketAddr) -> Self {
        let targets = Self::default();
        targets.set(vec![address]);
        targets
    }
}

/// A client that runs until it is stopped, or dropped.
#[derive(Debug)]
pub struct Load {
    name: String,
    stop: Stop,
    start: Instant,
    threads: Vec<JoinHandle<Result<Tally>>>,
}

/// What became of the requests of a client.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of answered requests.
    pub answered: usize,
    /// Answered requests per second.
    pub rate: usize,
    /// The longest time from the beginning of a connection to its answer.
    pub longest: Duration,
    /// Names of the servers that answered.
    pub servers: BTreeSet<String>,
    failed: Vec<String>,
}

impl Load {
    /// Starts a client. The name is for messages.
    pub fn start(name: &str, from: &Endpoint, targets: &Targets) -> Self {
        let stop = Stop::default();
        let count = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let threads = (0..THREADS).map(|_| {
            let (from, targets) = (from.clone(), targets.clone());
            let (stopped, count) = (stop.stopped(), Arc::clone(&count));
            std::thread::spawn(move || from.enter(|| run(&targets, &count, &stopped, start)))
        });
        Self {
            name: name.to_owned(),
            start,
            threads: threads.collect(),
            stop,
        }
    }

    /// Stops the client.
    ///
    /// # Errors
    /// A request has failed, or there was none.
    pub fn stop(self) -> Result<Tally> {
        drop(self.stop);
        let mut total = Tally::default();
        for thread in self.threads {
            let joined = thread.join().map_err(|_| anyhow!("it panicked"));
            let tally = joined.flatten().with_context(|| self.name.clone())?;
            total.answered += tally.answered;
            total.longest = total.longest.max(tally.longest);
            total.servers.extend(tally.servers);
            total.failed.extend(tally.failed);
        }
        total.rate = rate(total.answered, self.start.elapsed());
        match (total.failed.len(), total.answered) {
            (0, 1..) => Ok(total),
            (0, 0) => bail!("{}: no request was sent", self.name),
            (failed, answered) => {
                total.failed.truncate(MAX_TOLD);
                bail!(
                    "{}: {failed} requests failed and {answered} were answered: {}",
                    self.name,
                    total.failed.join("; ")
                )
            }
        }
    }
}

fn rate(count: usize, time: Duration) -> usize {
    count / usize::try_from(time.as_secs()).unwrap_or(1).max(1)
}

fn run(targets: &Targets, count: &AtomicUsize, stopped: &Stopped, start: Instant) -> Tally {
    let mut tally = Tally::default();
    while !stopped.now() {
        let began = Instant::now();
        if let Some(to) = targets.pick(count.fetch_add(1, Ordering::Relaxed)) {
            match ask(to) {
                Ok(server) => {
                    tally.answered += 1;
                    tally.longest = tally.longest.max(began.elapsed());
                    tally.servers.insert(server);
                }
                Err(error) => {
                    let at = (began - start).as_secs_f64();
                    tally
                        .failed
                        .push(format!("{to} after {at:.1} s: {error:#}"));
                }
            }
        }
        std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
    }
    tally
}

fn ask(to: SocketAddr) -> Result<String> {
    Connection::open_here(Transport::Tcp, to, LIMIT)?.ask_within(LIMIT)
}
