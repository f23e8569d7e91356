//! Flows whose sockets stay open while a scenario changes who translates them: TCP
//! connections, and UDP sockets that keep their port. On each a request is sent as soon as
//! the one before is answered, so at any time at most one datagram of a flow is in flight.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tweed_lab::{Transport, wait_until};

use crate::endpoint::Endpoint;
use crate::netexec::{Connection, is_timeout};
use crate::stop::{Stop, Stopped};

/// Pause between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for an answer until a datagram counts as lost; long enough for a
/// machine that compiles at the same time.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// How long to wait for an answer of a TCP connection, which repeats what is lost.
const BROKEN_AFTER: Duration = Duration::from_secs(60);

/// Maximum time until every flow has had another answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Flows that run until they are stopped, or dropped.
#[derive(Debug)]
pub struct Flows {
    flows: Vec<Flow>,
    stop: Stop,
}

#[derive(Debug)]
struct Flow {
    name: String,
    answered: Arc<AtomicUsize>,
    thread: JoinHandle<Result<Outcome>>,
}

/// What became of one flow, and the totals of all.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of answers.
    pub answered: usize,
    /// Number of datagrams without an answer.
    pub lost: usize,
    /// Names of the servers that answered.
    servers: BTreeSet<String>,
}

impl Flows {
    /// Opens a flow from each endpoint to an address. The name is for messages.
    pub fn open(wanted: &[(&str, &Endpoint, Transport, SocketAddr)]) -> Result<Self> {
        let mut all = Self {
            flows: Vec::new(),
            stop: Stop::default(),
        };
        for (what, from, transport, to) in wanted {
            let mut connection = Connection::open(from, *transport, *to)?;
            connection.ask()?;
            let answered = Arc::new(AtomicUsize::new(0));
            all.flows.push(Flow {
                name: format!("{what}, {transport:?} from {} to {to}", from.name),
                answered: Arc::clone(&answered),
                thread: std::thread::spawn({
                    let (stopped, transport) = (all.stop.stopped(), *transport);
                    move || run(connection, transport, &stopped, &answered)
                }),
            });
        }
        Ok(all)
    }

    /// Number of flows.
    pub fn count(&self) -> usize {
        self.flows.len()
    }

    /// Waits until every flow has got two more answers, so that at least one of them was
    /// asked for after this call.
    pub fn check(&self) -> Result<()> {
        for flow in &self.flows {
            let before = flow.answered.load(Ordering::Acquire);
            let what = format!("answers on an open flow ({})", flow.name);
            wait_until(&what, ANSWER_LIMIT, || {
                match flow.answered.load(Ordering::Acquire) - before {
                    // Why it has ended is reported by `stop`.
                    _ if flow.thread.is_finished() => Ok(()),
                    0 | 1 => Err("it waits".to_owned()),
                    _ => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Stops all flows after `changes` changes, each of which may have cost a UDP flow the
    /// datagram that was in flight.
    ///
    /// # Errors
    /// All flows that broke, lost more, or were answered by more than one server.
    pub fn stop(self, changes: usize) -> Result<Outcome> {
        drop(self.stop);
        let mut total = Outcome::default();
        let mut wrong = Vec::new();
        for flow in self.flows {
            let outcome = flow.thread.join();
            match outcome.unwrap_or_else(|_| Err(anyhow!("it panicked"))) {
                Err(error) => wrong.push(format!("{}: {error:#}", flow.name)),
                Ok(outcome) => {
                    if outcome.lost > changes || outcome.servers.len() > 1 {
                        wrong.push(format!("{}: {outcome:?}", flow.name));
                    }
                    total.answered += outcome.answered;
                    total.lost += outcome.lost;
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(total)
    }
}

fn run(
    mut connection: Connection,
    transport: Transport,
    stopped: &Stopped,
    answered: &AtomicUsize,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let limit = match transport {
        Transport::Tcp => BROKEN_AFTER,
        Transport::Udp => LOST_AFTER,
    };
    while !stopped.now() {
        match connection.ask_within(limit) {
            Ok(server) => {
                outcome.servers.insert(server);
                outcome.answered += 1;
                answered.store(outcome.answered, Ordering::Release);
            }
            Err(error) if transport == Transport::Udp && is_timeout(&error) => outcome.lost += 1,
            Err(error) => bail!("broke after {} answers: {error:#}", outcome.answered),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(outcome)
}
