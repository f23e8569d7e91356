//! Loads of one thread that is both ends: it sends, the kernel does the whole
//! path on its CPU, and it receives what has come. Nobody is woken and nobody
//! waits, so that what a unit takes is what the path costs.
//!
//! Two paths are measured at once, a few units on one and a few on the other:
//! a machine that is slower for a while is slower for both.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::load::Path;
use super::traffic::{LOST, PAYLOAD, connected, listen, udp_pair};

/// Units on one path before it is the other's turn.
const BATCH: u32 = 20;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alone {
    /// UDP packets with 64 bytes in them, to a socket that is full.
    Packet,
    /// A byte there and a byte back by UDP.
    UdpTrip,
    /// A byte there and a byte back on one TCP connection.
    TcpTrip,
}

/// Microseconds of CPU for a unit on each of two paths.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// The one in question.
    pub own: f64,
    /// The one that never changes.
    pub steady: f64,
}

impl Alone {
    /// All, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Packet, Self::UdpTrip, Self::TcpTrip];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "UDP packet",
            Self::UdpTrip => "UDP round trip",
            Self::TcpTrip => "TCP round trip",
        }
    }

    /// Puts this load on both paths in turn, until the first has had `window`
    /// of CPU, and a third of that before it counts.
    pub fn measure(
        self,
        (own, steady): (&Path<'_>, &Path<'_>),
        window: Duration,
    ) -> anyhow::Result<Pair> {
        let context = || format!("{} from {}", self.name(), own.client.name());
        let mut paths = [
            Ends::open(self, own).with_context(context)?,
            Ends::open(self, steady).with_context(context)?,
        ];
        let mut in_turn = |long: Duration| {
            let mut spent = [Duration::ZERO; 2];
            let mut units = 0_u32;
            while spent[0] < long {
                units += BATCH;
                for (ends, spent) in paths.iter_mut().zip(&mut spent) {
                    let begun = cpu()?;
                    for _ in 0..BATCH {
                        ends.unit().with_context(context)?;
                    }
                    *spent += cpu()?.saturating_sub(begun);
                }
            }
            anyhow::Ok(spent.map(|spent| spent.as_secs_f64() * 1e6 / f64::from(units)))
        };
        in_turn(window / 3)?;
        let [own, steady] = in_turn(window)?;
        Ok(Pair { own, steady })
    }
}

/// The sockets of a path.
enum Ends {
    Packet {
        client: UdpSocket,
        /// Nobody reads it; without it every packet would be answered.
        _server: UdpSocket,
    },
    UdpTrip {
        client: UdpSocket,
        server: UdpSocket,
    },
    TcpTrip {
        client: TcpStream,
        server: TcpStream,
        /// Keeps the port while the connection is there.
        _listener: TcpListener,
    },
}

impl Ends {
    fn open(load: Alone, path: &Path<'_>) -> anyhow::Result<Self> {
        if load == Alone::TcpTrip {
            let (listener, address) = listen(path)?;
            let (client, server) = connected(path, &listener, address)?;
            for stream in [&client, &server] {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOST))?;
            }
            return Ok(Self::TcpTrip {
                client,
                server,
                _listener: listener,
            });
        }
        let (client, server) = udp_pair(path)?;
        if load == Alone::Packet {
            // The kernel makes the least of it that there can be.
            setsockopt(&server, RcvBuf, &0).context("SO_RCVBUF")?;
            return Ok(Self::Packet {
                client,
                _server: server,
            });
        }
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(LOST))?;
        }
        client.send(&PAYLOAD)?;
        let (_, from) = server.recv_from(&mut [0])?;
        server.connect(from)?;
        Ok(Self::UdpTrip { client, server })
    }

    fn unit(&mut self) -> io::Result<()> {
        let mut byte = [0];
        match self {
            Self::Packet { client, .. } => client.send(&PAYLOAD).map(drop),
            Self::UdpTrip { client, server } => {
                client.send(&byte)?;
                server.recv(&mut byte)?;
                server.send(&byte)?;
                client.recv(&mut byte).map(drop)
            }
            Self::TcpTrip { client, server, .. } => {
                client.write_all(&byte)?;
                server.read_exact(&mut byte)?;
                server.write_all(&byte)?;
                client.read_exact(&mut byte)
            }
        }
    }
}

/// What this thread has had of its CPU, the kernel's work on packets included.
fn cpu() -> anyhow::Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("this thread's clock")?;
    Ok(Duration::from_nanos(time.num_nanoseconds().try_into()?))
}
