//! Packets from a client to the server of a node: when they begin and cease to arrive,
//! and what one costs.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use anyhow::Context;
use tweed_lab::realtime;

use super::host::Attached;

/// Time between two probes: the resolution of what is measured.
const INTERVAL: Duration = Duration::from_micros(200);

/// How long what packets meet may take to change.
const LIMIT: Duration = Duration::from_secs(600);

/// Number of flows that take turns: each sends again before there was silence.
const FLOWS: u32 = 500;

/// The ports of the flows: the first one, and how many there are.
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 32_768;

/// Between two probes of which the first came too early: so the ports last for longer than
/// conntrack knows their flows.
const UNTIL_NEXT: Duration = Duration::from_secs(1);

/// Without an arrival for so long, no packet of a flow passes.
const SILENCE: Duration = Duration::from_millis(300);

/// Number of packets whose time is taken together.
const BATCH: u32 = 200;

/// New flows all the time from a client to one UDP port of a server, or to what leads
/// there, and the moments when they arrive.
pub struct Probe {
    arrivals: mpsc::Receiver<Instant>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Probe {
    /// Begins to send to the port of the server.
    pub fn start(client: &Attached, server: &Attached, port: u16) -> anyhow::Result<Self> {
        Self::start_to(client, server, port, SocketAddr::new(server.address, port))
    }

    /// Begins to send to `to`, and to listen to the port of the server.
    pub fn start_to(
        client: &Attached,
        server: &Attached,
        port: u16,
        to: SocketAddr,
    ) -> anyhow::Result<Self> {
        let ear = server
            .pod
            .netns()
            .enter(|| UdpSocket::bind(("0.0.0.0", port)))??;
        ear.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (arrived, arrivals) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let listening = Arc::clone(&stop);
        let listen = realtime::spawn(move || {
            while !listening.load(Ordering::Acquire) {
                if ear.recv(&mut [0; 16]).is_ok() && arrived.send(Instant::now()).is_err() {
                    return;
                }
            }
        })?;
        let sockets = sockets(client, FLOWS)?;
        let sending = Arc::clone(&stop);
        let send = realtime::spawn(move || {
            // Each socket has a port of its own: a flow that is dropped is new again.
            for socket in sockets.iter().cycle() {
                if sending.load(Ordering::Acquire) {
                    return;
                }
                // The agent may not have made the pod's route again yet.
                let _ = socket.send_to(b"probe", to);
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(Self {
            arrivals,
            stop,
            threads: vec![listen, send],
        })
    }

    /// Begins to send to `to`, where no new flow arrives any more: a probe of which one does
    /// makes way for the next, since its flows may go on.
    pub fn start_refused(
        client: &Attached,
        server: &Attached,
        port: u16,
        to: SocketAddr,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            let probe = Self::start_to(client, server, port, to)?;
            if probe.arrivals.recv_timeout(SILENCE).is_err() {
                return Ok(probe);
            }
            drop(probe);
            std::thread::sleep(UNTIL_NEXT);
        }
        anyhow::bail!("packets of new flows still arrive")
    }

    /// The first arrival after `start`.
    pub fn wait_open(&self, start: Instant) -> anyhow::Result<Duration> {
        loop {
            let arrival = self
                .arrivals
                .recv_timeout(LIMIT)
                .context("nothing arrives")?;
            if arrival > start {
                return Ok(arrival - start);
            }
        }
    }

    /// The last arrival after `start`, before silence.
    pub fn wait_shut(&self, start: Instant) -> anyhow::Result<Duration> {
        let mut last = start;
        while start.elapsed() < LIMIT {
            match self.arrivals.recv_timeout(SILENCE) {
                Ok(arrival) => last = last.max(arrival),
                Err(_) => return Ok(last - start),
            }
        }
        anyhow::bail!("packets still arrive")
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // It does not panic, and a drop could not report it.
            let _ = thread.join();
        }
    }
}

/// Sockets whose ports none of the last 30,000 had: conntrack, which knows a flow for half a
/// minute after its last packet, does not take theirs for earlier ones.
fn sockets(client: &Attached, count: u32) -> anyhow::Result<Vec<UdpSocket>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let open = || {
        let next = || FIRST_PORT + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        let one = || loop {
            match UdpSocket::bind(("0.0.0.0", next())) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        };
        (0..count).map(|_| one()).collect()
    };
    let sockets: io::Result<Vec<UdpSocket>> = client.pod.netns().enter(open)?;
    sockets.context("sockets of the client")
}

/// What sending a packet takes, in nanoseconds, until the server's socket has it: the
/// whole way is walked by the sender. New flows, then the same after the server has answered
/// each. `to` leads to the port of the server.
pub fn cost(
    client: &Attached,
    server: &Attached,
    port: u16,
    to: SocketAddr,
) -> anyhow::Result<[f64; 2]> {
    let ear = server
        .pod
        .netns()
        .enter(|| UdpSocket::bind(("0.0.0.0", port)))??;
    ear.set_read_timeout(Some(Duration::from_secs(1)))?;
    let sockets = sockets(client, BATCH)?;
    let new = one_batch(&sockets, to)?;
    // A socket without a reader has room for one batch and not for two.
    for answered in 0..BATCH {
        let (_, from) = ear
            .recv_from(&mut [0; 16])
            .with_context(|| format!("{answered} of {BATCH} new flows to {to} arrived"))?;
        ear.send_to(b"answer", from)?;
    }
    Ok([new, one_batch(&sockets, to)?])
}

fn one_batch(sockets: &[UdpSocket], to: SocketAddr) -> anyhow::Result<f64> {
    let start = Instant::now();
    for socket in sockets {
        socket.send_to(b"packet", to)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / sockets.len() as f64)
}
