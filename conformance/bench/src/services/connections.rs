//! Connections of TCP from a client to the server of a node: when they begin to be refused.
//!
//! One thread makes and accepts them: a thread that accepts beside it may be late, and what
//! then overflows the listener's queue is repeated by the kernel after a second only.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt::Linger};

use crate::policies::host::Attached;
use crate::realtime;

/// Time between two connections of which one is to be refused.
const INTERVAL: Duration = Duration::from_micros(200);
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long until the first one is refused, or accepted.
const LIMIT: Duration = Duration::from_secs(600);

/// A client, and a server that listens.
struct Ends {
    listener: TcpListener,
    to: SocketAddr,
}

impl Ends {
    /// `to` leads to the port of the server.
    fn new(server: &Attached, port: u16, to: SocketAddr) -> anyhow::Result<Self> {
        let listen = || TcpListener::bind(("0.0.0.0", port));
        let listener = server.pod.netns().listen(listen)?;
        Ok(Self { listener, to })
    }

    /// Makes a connection from the calling thread's network namespace, and ends it.
    fn connect(&self) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&self.to, PATIENCE)?;
        let (accepted, _) = self.listener.accept()?;
        // Both end by a reset, so that no port waits for late packets.
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        for end in [stream, accepted] {
            setsockopt(&end, Linger, &at_once)?;
        }
        Ok(())
    }
}

/// Connections that are made one after the other until one is refused.
pub struct UntilRefused {
    thread: JoinHandle<()>,
    /// When the first one was made, and when the first after it was refused.
    turns: mpsc::Receiver<io::Result<Instant>>,
}

impl UntilRefused {
    /// Begins them, and waits for the first that is made. `to` leads to the port of the server.
    pub fn start(
        client: &Attached,
        server: &Attached,
        port: u16,
        to: SocketAddr,
    ) -> anyhow::Result<Self> {
        let ends = Ends::new(server, port, to)?;
        let (tell, turns) = mpsc::channel();
        let work = move || connect_until_refused(&ends, &tell);
        let thread = client.pod.netns().enter(|| realtime::spawn(work))??;
        let one = Self { thread, turns };
        one.next()?;
        Ok(one)
    }

    /// From `start` to the first one that is refused.
    pub fn wait(self, start: Instant) -> anyhow::Result<Duration> {
        let refused = self.next()?;
        let ended = self.thread.join();
        ended.ok().context("what makes connections has panicked")?;
        let took = refused.checked_duration_since(start);
        took.context("a connection was refused before that")
    }

    fn next(&self) -> anyhow::Result<Instant> {
        let turn = self.turns.recv_timeout(LIMIT);
        let turn = turn.context("connections are neither made nor refused")?;
        turn.context("connection")
    }
}

/// Tells of the first connection that is made, and of the first that is refused afterwards.
fn connect_until_refused(ends: &Ends, tell: &mpsc::Sender<io::Result<Instant>>) {
    for awaited in [Outcome::Made, Outcome::Refused] {
        let turn = connect_until(ends, awaited);
        let is_last = turn.is_err();
        if tell.send(turn).is_err() || is_last {
            return;
        }
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Made,
    Refused,
}

/// When the first connection has this outcome.
fn connect_until(ends: &Ends, awaited: Outcome) -> io::Result<Instant> {
    loop {
        // The nodes have no default route: who refuses what was to be sent on, as kube-proxy
        // does, never sees a packet to a Service without endpoints. The kernel says so to each
        // client now and then only.
        let outcome = match ends.connect().map_err(|error| (error.kind(), error)) {
            Ok(()) => Outcome::Made,
            Err((ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable, _)) => Outcome::Refused,
            Err((ErrorKind::TimedOut, _)) if awaited == Outcome::Made => Outcome::Refused,
            Err((_, error)) => return Err(error),
        };
        if outcome == awaited {
            return Ok(Instant::now());
        }
        sleep(INTERVAL);
    }
}
