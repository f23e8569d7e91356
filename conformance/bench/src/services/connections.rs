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
use tweed_lab::realtime;

use crate::policies::host::Attached;

/// Time between two connections.
const INTERVAL: Duration = Duration::from_micros(200);
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long until the first one is refused, or accepted.
const LIMIT: Duration = Duration::from_secs(600);

/// Connections that are made one after the other until one is refused.
pub struct UntilRefused {
    thread: JoinHandle<()>,
    /// What became of each, and when.
    turns: mpsc::Receiver<(Instant, io::Result<()>)>,
}

impl UntilRefused {
    /// Begins them, and waits for the first that is made. `to` leads to the port of the server.
    pub fn start(
        client: &Attached,
        server: &Attached,
        port: u16,
        to: SocketAddr,
    ) -> anyhow::Result<Self> {
        let listen = || TcpListener::bind(("0.0.0.0", port));
        let listener = server.pod.netns().listen(listen)?;
        let (tell, turns) = mpsc::channel();
        let work = move || {
            let turn = || {
                let outcome = connect(&listener, to).and_then(reset);
                (Instant::now(), outcome)
            };
            while tell.send(turn()).is_ok() {
                sleep(INTERVAL);
            }
        };
        let thread = client.pod.netns().enter(|| realtime::spawn(work))??;
        let one = Self { thread, turns };
        one.next(true)?;
        Ok(one)
    }

    /// From `start` to the first one that is refused.
    pub fn wait(self, start: Instant) -> anyhow::Result<Duration> {
        let refused = self.next(false)?;
        drop(self.turns);
        let ended = self.thread.join();
        ended.ok().context("what makes connections has panicked")?;
        let took = refused.checked_duration_since(start);
        took.context("a connection was refused before that")
    }

    /// When the next one was made, or refused.
    fn next(&self, is_made: bool) -> anyhow::Result<Instant> {
        loop {
            let turn = self.turns.recv_timeout(LIMIT);
            let (at, outcome) = turn.context("connections are neither made nor refused")?;
            // The nodes have no default route: who refuses what was to be sent on, as
            // kube-proxy does, never sees a packet to a Service without endpoints. The kernel
            // says so to each client now and then only.
            let was_made = match outcome.as_ref().map_err(io::Error::kind) {
                Ok(()) => true,
                Err(ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable) => false,
                Err(ErrorKind::TimedOut) if is_made => false,
                Err(_) => return outcome.map(|()| at).context("connection"),
            };
            if was_made == is_made {
                return Ok(at);
            }
        }
    }
}

/// Makes a connection from the calling thread's network namespace.
pub fn connect(listener: &TcpListener, to: SocketAddr) -> io::Result<[TcpStream; 2]> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    let (accepted, _) = listener.accept()?;
    Ok([stream, accepted])
}

/// Ends it by a reset, so that no port waits for late packets.
pub fn reset(ends: [TcpStream; 2]) -> io::Result<()> {
    let at_once = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    for end in ends {
        setsockopt(&end, Linger, &at_once)?;
    }
    Ok(())
}
