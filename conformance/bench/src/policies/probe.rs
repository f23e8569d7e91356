//! Packets from a client to the server of a node: when they begin and cease to arrive,
//! and what one costs.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use anyhow::Context;

use super::host::Attached;
use crate::realtime;

/// Time between two probes: the resolution of what is measured.
const INTERVAL: Duration = Duration::from_micros(200);

/// How long what packets meet may take to change.
const LIMIT: Duration = Duration::from_secs(600);

/// Number of flows that take turns: each sends again before there was silence.
const FLOWS: u32 = 500;

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

fn sockets(client: &Attached, count: u32) -> anyhow::Result<Vec<UdpSocket>> {
    let open = || {
        (0..count)
            .map(|_| UdpSocket::bind(("0.0.0.0", 0)))
            .collect()
    };
    let sockets: io::Result<Vec<UdpSocket>> = client.pod.netns().enter(open)?;
    sockets.context("sockets of the client")
}

/// What sending a packet takes, in nanoseconds, until the server's socket has it: the
/// whole way is walked by the sender. New flows, then established ones. `to` leads to the
/// port of the server.
pub fn cost(
    client: &Attached,
    server: &Attached,
    port: u16,
    to: SocketAddr,
) -> anyhow::Result<[f64; 2]> {
    let _ear = server
        .pod
        .netns()
        .enter(|| UdpSocket::bind(("0.0.0.0", port)))??;
    let sockets = sockets(client, BATCH)?;
    Ok([one_batch(&sockets, to)?, one_batch(&sockets, to)?])
}

fn one_batch(sockets: &[UdpSocket], to: SocketAddr) -> anyhow::Result<f64> {
    let start = Instant::now();
    for socket in sockets {
        socket.send_to(b"packet", to)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / sockets.len() as f64)
}
